/* The target's types. */
#define NO_RESULTS
#include "bpf.h"
#include "core_types.h"

struct thing thing;
struct only_newer *newer;
struct grown grown;
enum colour colour;
word one_word;
