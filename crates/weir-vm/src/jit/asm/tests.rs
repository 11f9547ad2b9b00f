//! The encoder against bytes that `llvm-mc` 14 made of the instruction written behind each line.

use super::*;

fn check(expected: &str, write: impl Fn(&mut Assembler)) {
    let mut assembler = Assembler::default();
    write(&mut assembler);
    let (code, _) = assembler.finish().expect("no labels");
    let hex: String = code.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, expected);
}

macro_rules! case {
    ($expected:literal, |$a:ident| $call:expr) => {
        check($expected, |$a| $call)
    };
}

#[test]
fn labels_become_distances() {
    let mut a = Assembler::default();
    let (forward, back) = (a.label(), a.label());
    a.bind(back);
    a.jump_if(Cond::Equal, forward);
    a.call(back);
    a.jump(back);
    a.bind(forward);
    assert_eq!(a.offset(forward), Some(16));
    let (code, _) = a.finish().expect("bound");
    let expected = [
        0x0f, 0x84, 10, 0, 0, 0, 0xe8, 0xf5, 0xff, 0xff, 0xff, 0xe9, 0xf0, 0xff, 0xff, 0xff,
    ];
    assert_eq!(code, expected);
    let write = |mut a: Assembler| {
        let (near, far) = (a.label(), a.label());
        a.jump_if(Cond::Below, near);
        a.jump(far);
        a.call(near);
        a.bind(near);
        (0..128).for_each(|_| a.ret());
        a.bind(far);
        a
    };
    let first = write(Assembler::default());
    let (code, _) = write(Assembler::again(&first)).finish().expect("bound");
    assert_eq!(
        code[..12],
        [0x72, 10, 0xe9, 0x85, 0, 0, 0, 0xe8, 0, 0, 0, 0]
    );
    let mut a = Assembler::default();
    let here = a.label();
    a.bind(here);
    a.lea_label(R9, here);
    assert_eq!(
        a.finish().expect("bound").0,
        [0x4c, 0x8d, 0x0d, 0xf9, 0xff, 0xff, 0xff]
    );
    let mut a = Assembler::default();
    let nowhere = a.label();
    a.jump(nowhere);
    assert!(a.finish().is_none());
}

#[test]
#[rustfmt::skip]
fn instructions() {
    case!("89f8", |a| a.mov(false, RAX, RDI)); // mov eax, edi
    case!("01f8", |a| a.alu(false, Alu::Add, RAX, RDI)); // add eax, edi
    case!("09f8", |a| a.alu(false, Alu::Or, RAX, RDI)); // or eax, edi
    case!("21f8", |a| a.alu(false, Alu::And, RAX, RDI)); // and eax, edi
    case!("29f8", |a| a.alu(false, Alu::Sub, RAX, RDI)); // sub eax, edi
    case!("31f8", |a| a.alu(false, Alu::Xor, RAX, RDI)); // xor eax, edi
    case!("39f8", |a| a.alu(false, Alu::Cmp, RAX, RDI)); // cmp eax, edi
    case!("85f8", |a| a.test(false, RAX, RDI)); // test eax, edi
    case!("0fafc7", |a| a.imul(false, RAX, RDI)); // imul eax, edi
    case!("69c7a0860100", |a| a.imul_imm(false, RAX, RDI, 100_000)); // imul eax, edi, 100000
    case!("c4e231f7c7", |a| a.shift_by(false, Shift::Shl, RAX, RDI, R9)); // shlx eax, edi, r9d
    case!("c4e233f7c7", |a| a.shift_by(false, Shift::Shr, RAX, RDI, R9)); // shrx eax, edi, r9d
    case!("c4e232f7c7", |a| a.shift_by(false, Shift::Sar, RAX, RDI, R9)); // sarx eax, edi, r9d
    case!("c4e271f7c7", |a| a.shift_by(false, Shift::Shl, RAX, RDI, RCX)); // shlx eax, edi, ecx
    case!("400fbec7", |a| a.sign_extend(false, Width::B1, RAX, RDI)); // movsx eax, dil
    case!("0fbfc7", |a| a.sign_extend(false, Width::B2, RAX, RDI)); // movsx eax, di
    case!("4189d8", |a| a.mov(false, R8, RBX)); // mov r8d, ebx
    case!("4101d8", |a| a.alu(false, Alu::Add, R8, RBX)); // add r8d, ebx
    case!("4109d8", |a| a.alu(false, Alu::Or, R8, RBX)); // or r8d, ebx
    case!("4121d8", |a| a.alu(false, Alu::And, R8, RBX)); // and r8d, ebx
    case!("4129d8", |a| a.alu(false, Alu::Sub, R8, RBX)); // sub r8d, ebx
    case!("4131d8", |a| a.alu(false, Alu::Xor, R8, RBX)); // xor r8d, ebx
    case!("4139d8", |a| a.alu(false, Alu::Cmp, R8, RBX)); // cmp r8d, ebx
    case!("4185d8", |a| a.test(false, R8, RBX)); // test r8d, ebx
    case!("440fafc3", |a| a.imul(false, R8, RBX)); // imul r8d, ebx
    case!("4469c3a0860100", |a| a.imul_imm(false, R8, RBX, 100_000)); // imul r8d, ebx, 100000
    case!("c46231f7c3", |a| a.shift_by(false, Shift::Shl, R8, RBX, R9)); // shlx r8d, ebx, r9d
    case!("c46233f7c3", |a| a.shift_by(false, Shift::Shr, R8, RBX, R9)); // shrx r8d, ebx, r9d
    case!("c46232f7c3", |a| a.shift_by(false, Shift::Sar, R8, RBX, R9)); // sarx r8d, ebx, r9d
    case!("c46271f7c3", |a| a.shift_by(false, Shift::Shl, R8, RBX, RCX)); // shlx r8d, ebx, ecx
    case!("440fbec3", |a| a.sign_extend(false, Width::B1, R8, RBX)); // movsx r8d, bl
    case!("440fbfc3", |a| a.sign_extend(false, Width::B2, R8, RBX)); // movsx r8d, bx
    case!("4589e5", |a| a.mov(false, R13, R12)); // mov r13d, r12d
    case!("4501e5", |a| a.alu(false, Alu::Add, R13, R12)); // add r13d, r12d
    case!("4509e5", |a| a.alu(false, Alu::Or, R13, R12)); // or r13d, r12d
    case!("4521e5", |a| a.alu(false, Alu::And, R13, R12)); // and r13d, r12d
    case!("4529e5", |a| a.alu(false, Alu::Sub, R13, R12)); // sub r13d, r12d
    case!("4531e5", |a| a.alu(false, Alu::Xor, R13, R12)); // xor r13d, r12d
    case!("4539e5", |a| a.alu(false, Alu::Cmp, R13, R12)); // cmp r13d, r12d
    case!("4585e5", |a| a.test(false, R13, R12)); // test r13d, r12d
    case!("450fafec", |a| a.imul(false, R13, R12)); // imul r13d, r12d
    case!("4569eca0860100", |a| a.imul_imm(false, R13, R12, 100_000)); // imul r13d, r12d, 100000
    case!("c44231f7ec", |a| a.shift_by(false, Shift::Shl, R13, R12, R9)); // shlx r13d, r12d, r9d
    case!("c44233f7ec", |a| a.shift_by(false, Shift::Shr, R13, R12, R9)); // shrx r13d, r12d, r9d
    case!("c44232f7ec", |a| a.shift_by(false, Shift::Sar, R13, R12, R9)); // sarx r13d, r12d, r9d
    case!("c44271f7ec", |a| a.shift_by(false, Shift::Shl, R13, R12, RCX)); // shlx r13d, r12d, ecx
    case!("450fbeec", |a| a.sign_extend(false, Width::B1, R13, R12)); // movsx r13d, r12b
    case!("450fbfec", |a| a.sign_extend(false, Width::B2, R13, R12)); // movsx r13d, r12w
    case!("4489fd", |a| a.mov(false, RBP, R15)); // mov ebp, r15d
    case!("4401fd", |a| a.alu(false, Alu::Add, RBP, R15)); // add ebp, r15d
    case!("4409fd", |a| a.alu(false, Alu::Or, RBP, R15)); // or ebp, r15d
    case!("4421fd", |a| a.alu(false, Alu::And, RBP, R15)); // and ebp, r15d
    case!("4429fd", |a| a.alu(false, Alu::Sub, RBP, R15)); // sub ebp, r15d
    case!("4431fd", |a| a.alu(false, Alu::Xor, RBP, R15)); // xor ebp, r15d
    case!("4439fd", |a| a.alu(false, Alu::Cmp, RBP, R15)); // cmp ebp, r15d
    case!("4485fd", |a| a.test(false, RBP, R15)); // test ebp, r15d
    case!("410fafef", |a| a.imul(false, RBP, R15)); // imul ebp, r15d
    case!("4169efa0860100", |a| a.imul_imm(false, RBP, R15, 100_000)); // imul ebp, r15d, 100000
    case!("c4c231f7ef", |a| a.shift_by(false, Shift::Shl, RBP, R15, R9)); // shlx ebp, r15d, r9d
    case!("c4c233f7ef", |a| a.shift_by(false, Shift::Shr, RBP, R15, R9)); // shrx ebp, r15d, r9d
    case!("c4c232f7ef", |a| a.shift_by(false, Shift::Sar, RBP, R15, R9)); // sarx ebp, r15d, r9d
    case!("c4c271f7ef", |a| a.shift_by(false, Shift::Shl, RBP, R15, RCX)); // shlx ebp, r15d, ecx
    case!("410fbeef", |a| a.sign_extend(false, Width::B1, RBP, R15)); // movsx ebp, r15b
    case!("410fbfef", |a| a.sign_extend(false, Width::B2, RBP, R15)); // movsx ebp, r15w
    case!("83c105", |a| a.alu_imm(false, Alu::Add, RCX, 5)); // add ecx, 5
    case!("83c1fd", |a| a.alu_imm(false, Alu::Add, RCX, -3)); // add ecx, -3
    case!("81c145230100", |a| a.alu_imm(false, Alu::Add, RCX, 74565)); // add ecx, 74565
    case!("81c1bbdcfeff", |a| a.alu_imm(false, Alu::Add, RCX, -74565)); // add ecx, -74565
    case!("81f970110100", |a| a.alu_imm(false, Alu::Cmp, RCX, 70_000)); // cmp ecx, 70000
    case!("f7c170110100", |a| a.test_imm(false, RCX, 70_000)); // test ecx, 70000
    case!("f7d9", |a| a.unary(false, Unary::Neg, RCX)); // neg ecx
    case!("f7e1", |a| a.unary(false, Unary::Mul, RCX)); // mul ecx
    case!("f7f1", |a| a.unary(false, Unary::Div, RCX)); // div ecx
    case!("f7f9", |a| a.unary(false, Unary::Idiv, RCX)); // idiv ecx
    case!("c1c107", |a| a.shift_imm(false, Shift::Rol, RCX, 7)); // rol ecx, 7
    case!("d3c1", |a| a.shift_cl(false, Shift::Rol, RCX)); // rol ecx, cl
    case!("c1e107", |a| a.shift_imm(false, Shift::Shl, RCX, 7)); // shl ecx, 7
    case!("d3e1", |a| a.shift_cl(false, Shift::Shl, RCX)); // shl ecx, cl
    case!("c1e907", |a| a.shift_imm(false, Shift::Shr, RCX, 7)); // shr ecx, 7
    case!("d3e9", |a| a.shift_cl(false, Shift::Shr, RCX)); // shr ecx, cl
    case!("c1f907", |a| a.shift_imm(false, Shift::Sar, RCX, 7)); // sar ecx, 7
    case!("d3f9", |a| a.shift_cl(false, Shift::Sar, RCX)); // sar ecx, cl
    case!("0fc9", |a| a.bswap(false, RCX)); // bswap ecx
    case!("83c505", |a| a.alu_imm(false, Alu::Add, RBP, 5)); // add ebp, 5
    case!("83c5fd", |a| a.alu_imm(false, Alu::Add, RBP, -3)); // add ebp, -3
    case!("81c545230100", |a| a.alu_imm(false, Alu::Add, RBP, 74565)); // add ebp, 74565
    case!("81c5bbdcfeff", |a| a.alu_imm(false, Alu::Add, RBP, -74565)); // add ebp, -74565
    case!("81fd70110100", |a| a.alu_imm(false, Alu::Cmp, RBP, 70_000)); // cmp ebp, 70000
    case!("f7c570110100", |a| a.test_imm(false, RBP, 70_000)); // test ebp, 70000
    case!("f7dd", |a| a.unary(false, Unary::Neg, RBP)); // neg ebp
    case!("f7e5", |a| a.unary(false, Unary::Mul, RBP)); // mul ebp
    case!("f7f5", |a| a.unary(false, Unary::Div, RBP)); // div ebp
    case!("f7fd", |a| a.unary(false, Unary::Idiv, RBP)); // idiv ebp
    case!("c1c507", |a| a.shift_imm(false, Shift::Rol, RBP, 7)); // rol ebp, 7
    case!("d3c5", |a| a.shift_cl(false, Shift::Rol, RBP)); // rol ebp, cl
    case!("c1e507", |a| a.shift_imm(false, Shift::Shl, RBP, 7)); // shl ebp, 7
    case!("d3e5", |a| a.shift_cl(false, Shift::Shl, RBP)); // shl ebp, cl
    case!("c1ed07", |a| a.shift_imm(false, Shift::Shr, RBP, 7)); // shr ebp, 7
    case!("d3ed", |a| a.shift_cl(false, Shift::Shr, RBP)); // shr ebp, cl
    case!("c1fd07", |a| a.shift_imm(false, Shift::Sar, RBP, 7)); // sar ebp, 7
    case!("d3fd", |a| a.shift_cl(false, Shift::Sar, RBP)); // sar ebp, cl
    case!("0fcd", |a| a.bswap(false, RBP)); // bswap ebp
    case!("4183c405", |a| a.alu_imm(false, Alu::Add, R12, 5)); // add r12d, 5
    case!("4183c4fd", |a| a.alu_imm(false, Alu::Add, R12, -3)); // add r12d, -3
    case!("4181c445230100", |a| a.alu_imm(false, Alu::Add, R12, 74565)); // add r12d, 74565
    case!("4181c4bbdcfeff", |a| a.alu_imm(false, Alu::Add, R12, -74565)); // add r12d, -74565
    case!("4181fc70110100", |a| a.alu_imm(false, Alu::Cmp, R12, 70_000)); // cmp r12d, 70000
    case!("41f7c470110100", |a| a.test_imm(false, R12, 70_000)); // test r12d, 70000
    case!("41f7dc", |a| a.unary(false, Unary::Neg, R12)); // neg r12d
    case!("41f7e4", |a| a.unary(false, Unary::Mul, R12)); // mul r12d
    case!("41f7f4", |a| a.unary(false, Unary::Div, R12)); // div r12d
    case!("41f7fc", |a| a.unary(false, Unary::Idiv, R12)); // idiv r12d
    case!("41c1c407", |a| a.shift_imm(false, Shift::Rol, R12, 7)); // rol r12d, 7
    case!("41d3c4", |a| a.shift_cl(false, Shift::Rol, R12)); // rol r12d, cl
    case!("41c1e407", |a| a.shift_imm(false, Shift::Shl, R12, 7)); // shl r12d, 7
    case!("41d3e4", |a| a.shift_cl(false, Shift::Shl, R12)); // shl r12d, cl
    case!("41c1ec07", |a| a.shift_imm(false, Shift::Shr, R12, 7)); // shr r12d, 7
    case!("41d3ec", |a| a.shift_cl(false, Shift::Shr, R12)); // shr r12d, cl
    case!("41c1fc07", |a| a.shift_imm(false, Shift::Sar, R12, 7)); // sar r12d, 7
    case!("41d3fc", |a| a.shift_cl(false, Shift::Sar, R12)); // sar r12d, cl
    case!("410fcc", |a| a.bswap(false, R12)); // bswap r12d
    case!("99", |a| a.sign_to_rdx(false)); // cdq
    case!("443b00", |a| a.alu_load(false, Alu::Cmp, R8, at(RAX, 0))); // cmp r8d, dword ptr [rax+0]
    case!("832801", |a| a.alu_mem_imm(false, Alu::Sub, at(RAX, 0), 1)); // sub dword ptr [rax+0], 1
    case!("813800100000", |a| a.alu_mem_imm(false, Alu::Cmp, at(RAX, 0), 4096)); // cmp dword ptr [rax+0], 4096
    case!("f00130", |a| a.lock_alu(false, Alu::Add, at(RAX, 0), RSI)); // lock add dword ptr [rax+0], esi
    case!("f0440fc138", |a| a.lock_xadd(false, at(RAX, 0), R15)); // lock xadd dword ptr [rax+0], r15d
    case!("8718", |a| a.xchg(false, at(RAX, 0), RBX)); // xchg dword ptr [rax+0], ebx
    case!("f0440fb108", |a| a.lock_cmpxchg(false, at(RAX, 0), R9)); // lock cmpxchg dword ptr [rax+0], r9d
    case!("443b4500", |a| a.alu_load(false, Alu::Cmp, R8, at(RBP, 0))); // cmp r8d, dword ptr [rbp+0]
    case!("836d0001", |a| a.alu_mem_imm(false, Alu::Sub, at(RBP, 0), 1)); // sub dword ptr [rbp+0], 1
    case!("817d0000100000", |a| a.alu_mem_imm(false, Alu::Cmp, at(RBP, 0), 4096)); // cmp dword ptr [rbp+0], 4096
    case!("f0017500", |a| a.lock_alu(false, Alu::Add, at(RBP, 0), RSI)); // lock add dword ptr [rbp+0], esi
    case!("f0440fc17d00", |a| a.lock_xadd(false, at(RBP, 0), R15)); // lock xadd dword ptr [rbp+0], r15d
    case!("875d00", |a| a.xchg(false, at(RBP, 0), RBX)); // xchg dword ptr [rbp+0], ebx
    case!("f0440fb14d00", |a| a.lock_cmpxchg(false, at(RBP, 0), R9)); // lock cmpxchg dword ptr [rbp+0], r9d
    case!("453b4500", |a| a.alu_load(false, Alu::Cmp, R8, at(R13, 0))); // cmp r8d, dword ptr [r13+0]
    case!("41836d0001", |a| a.alu_mem_imm(false, Alu::Sub, at(R13, 0), 1)); // sub dword ptr [r13+0], 1
    case!("41817d0000100000", |a| a.alu_mem_imm(false, Alu::Cmp, at(R13, 0), 4096)); // cmp dword ptr [r13+0], 4096
    case!("f041017500", |a| a.lock_alu(false, Alu::Add, at(R13, 0), RSI)); // lock add dword ptr [r13+0], esi
    case!("f0450fc17d00", |a| a.lock_xadd(false, at(R13, 0), R15)); // lock xadd dword ptr [r13+0], r15d
    case!("41875d00", |a| a.xchg(false, at(R13, 0), RBX)); // xchg dword ptr [r13+0], ebx
    case!("f0450fb14d00", |a| a.lock_cmpxchg(false, at(R13, 0), R9)); // lock cmpxchg dword ptr [r13+0], r9d
    case!("443b442408", |a| a.alu_load(false, Alu::Cmp, R8, at(RSP, 8))); // cmp r8d, dword ptr [rsp+8]
    case!("836c240801", |a| a.alu_mem_imm(false, Alu::Sub, at(RSP, 8), 1)); // sub dword ptr [rsp+8], 1
    case!("817c240800100000", |a| a.alu_mem_imm(false, Alu::Cmp, at(RSP, 8), 4096)); // cmp dword ptr [rsp+8], 4096
    case!("f001742408", |a| a.lock_alu(false, Alu::Add, at(RSP, 8), RSI)); // lock add dword ptr [rsp+8], esi
    case!("f0440fc17c2408", |a| a.lock_xadd(false, at(RSP, 8), R15)); // lock xadd dword ptr [rsp+8], r15d
    case!("875c2408", |a| a.xchg(false, at(RSP, 8), RBX)); // xchg dword ptr [rsp+8], ebx
    case!("f0440fb14c2408", |a| a.lock_cmpxchg(false, at(RSP, 8), R9)); // lock cmpxchg dword ptr [rsp+8], r9d
    case!("453b0424", |a| a.alu_load(false, Alu::Cmp, R8, at(R12, 0))); // cmp r8d, dword ptr [r12+0]
    case!("41832c2401", |a| a.alu_mem_imm(false, Alu::Sub, at(R12, 0), 1)); // sub dword ptr [r12+0], 1
    case!("41813c2400100000", |a| a.alu_mem_imm(false, Alu::Cmp, at(R12, 0), 4096)); // cmp dword ptr [r12+0], 4096
    case!("f041013424", |a| a.lock_alu(false, Alu::Add, at(R12, 0), RSI)); // lock add dword ptr [r12+0], esi
    case!("f0450fc13c24", |a| a.lock_xadd(false, at(R12, 0), R15)); // lock xadd dword ptr [r12+0], r15d
    case!("41871c24", |a| a.xchg(false, at(R12, 0), RBX)); // xchg dword ptr [r12+0], ebx
    case!("f0450fb10c24", |a| a.lock_cmpxchg(false, at(R12, 0), R9)); // lock cmpxchg dword ptr [r12+0], r9d
    case!("453b4424f8", |a| a.alu_load(false, Alu::Cmp, R8, at(R12, -8))); // cmp r8d, dword ptr [r12-8]
    case!("41836c24f801", |a| a.alu_mem_imm(false, Alu::Sub, at(R12, -8), 1)); // sub dword ptr [r12-8], 1
    case!("41817c24f800100000", |a| a.alu_mem_imm(false, Alu::Cmp, at(R12, -8), 4096)); // cmp dword ptr [r12-8], 4096
    case!("f041017424f8", |a| a.lock_alu(false, Alu::Add, at(R12, -8), RSI)); // lock add dword ptr [r12-8], esi
    case!("f0450fc17c24f8", |a| a.lock_xadd(false, at(R12, -8), R15)); // lock xadd dword ptr [r12-8], r15d
    case!("41875c24f8", |a| a.xchg(false, at(R12, -8), RBX)); // xchg dword ptr [r12-8], ebx
    case!("f0450fb14c24f8", |a| a.lock_cmpxchg(false, at(R12, -8), R9)); // lock cmpxchg dword ptr [r12-8], r9d
    case!("443b87e8030000", |a| a.alu_load(false, Alu::Cmp, R8, at(RDI, 1000))); // cmp r8d, dword ptr [rdi+1000]
    case!("83afe803000001", |a| a.alu_mem_imm(false, Alu::Sub, at(RDI, 1000), 1)); // sub dword ptr [rdi+1000], 1
    case!("81bfe803000000100000", |a| a.alu_mem_imm(false, Alu::Cmp, at(RDI, 1000), 4096)); // cmp dword ptr [rdi+1000], 4096
    case!("f001b7e8030000", |a| a.lock_alu(false, Alu::Add, at(RDI, 1000), RSI)); // lock add dword ptr [rdi+1000], esi
    case!("f0440fc1bfe8030000", |a| a.lock_xadd(false, at(RDI, 1000), R15)); // lock xadd dword ptr [rdi+1000], r15d
    case!("879fe8030000", |a| a.xchg(false, at(RDI, 1000), RBX)); // xchg dword ptr [rdi+1000], ebx
    case!("f0440fb18fe8030000", |a| a.lock_cmpxchg(false, at(RDI, 1000), R9)); // lock cmpxchg dword ptr [rdi+1000], r9d
    case!("453b04c2", |a| a.alu_load(false, Alu::Cmp, R8, Mem { base: R10, index: Some((RAX, 3)), disp: 0 })); // cmp r8d, dword ptr [r10+rax*8+0]
    case!("41832cc201", |a| a.alu_mem_imm(false, Alu::Sub, Mem { base: R10, index: Some((RAX, 3)), disp: 0 }, 1)); // sub dword ptr [r10+rax*8+0], 1
    case!("41813cc200100000", |a| a.alu_mem_imm(false, Alu::Cmp, Mem { base: R10, index: Some((RAX, 3)), disp: 0 }, 4096)); // cmp dword ptr [r10+rax*8+0], 4096
    case!("f0410134c2", |a| a.lock_alu(false, Alu::Add, Mem { base: R10, index: Some((RAX, 3)), disp: 0 }, RSI)); // lock add dword ptr [r10+rax*8+0], esi
    case!("f0450fc13cc2", |a| a.lock_xadd(false, Mem { base: R10, index: Some((RAX, 3)), disp: 0 }, R15)); // lock xadd dword ptr [r10+rax*8+0], r15d
    case!("41871cc2", |a| a.xchg(false, Mem { base: R10, index: Some((RAX, 3)), disp: 0 }, RBX)); // xchg dword ptr [r10+rax*8+0], ebx
    case!("f0450fb10cc2", |a| a.lock_cmpxchg(false, Mem { base: R10, index: Some((RAX, 3)), disp: 0 }, R9)); // lock cmpxchg dword ptr [r10+rax*8+0], r9d
    case!("473b448d04", |a| a.alu_load(false, Alu::Cmp, R8, Mem { base: R13, index: Some((R9, 2)), disp: 4 })); // cmp r8d, dword ptr [r13+r9*4+4]
    case!("43836c8d0401", |a| a.alu_mem_imm(false, Alu::Sub, Mem { base: R13, index: Some((R9, 2)), disp: 4 }, 1)); // sub dword ptr [r13+r9*4+4], 1
    case!("43817c8d0400100000", |a| a.alu_mem_imm(false, Alu::Cmp, Mem { base: R13, index: Some((R9, 2)), disp: 4 }, 4096)); // cmp dword ptr [r13+r9*4+4], 4096
    case!("f04301748d04", |a| a.lock_alu(false, Alu::Add, Mem { base: R13, index: Some((R9, 2)), disp: 4 }, RSI)); // lock add dword ptr [r13+r9*4+4], esi
    case!("f0470fc17c8d04", |a| a.lock_xadd(false, Mem { base: R13, index: Some((R9, 2)), disp: 4 }, R15)); // lock xadd dword ptr [r13+r9*4+4], r15d
    case!("43875c8d04", |a| a.xchg(false, Mem { base: R13, index: Some((R9, 2)), disp: 4 }, RBX)); // xchg dword ptr [r13+r9*4+4], ebx
    case!("f0470fb14c8d04", |a| a.lock_cmpxchg(false, Mem { base: R13, index: Some((R9, 2)), disp: 4 }, R9)); // lock cmpxchg dword ptr [r13+r9*4+4], r9d
    case!("4889f8", |a| a.mov(true, RAX, RDI)); // mov rax, rdi
    case!("4801f8", |a| a.alu(true, Alu::Add, RAX, RDI)); // add rax, rdi
    case!("4809f8", |a| a.alu(true, Alu::Or, RAX, RDI)); // or rax, rdi
    case!("4821f8", |a| a.alu(true, Alu::And, RAX, RDI)); // and rax, rdi
    case!("4829f8", |a| a.alu(true, Alu::Sub, RAX, RDI)); // sub rax, rdi
    case!("4831f8", |a| a.alu(true, Alu::Xor, RAX, RDI)); // xor rax, rdi
    case!("4839f8", |a| a.alu(true, Alu::Cmp, RAX, RDI)); // cmp rax, rdi
    case!("4885f8", |a| a.test(true, RAX, RDI)); // test rax, rdi
    case!("480fafc7", |a| a.imul(true, RAX, RDI)); // imul rax, rdi
    case!("4869c7a0860100", |a| a.imul_imm(true, RAX, RDI, 100_000)); // imul rax, rdi, 100000
    case!("c4e2b1f7c7", |a| a.shift_by(true, Shift::Shl, RAX, RDI, R9)); // shlx rax, rdi, r9
    case!("c4e2b3f7c7", |a| a.shift_by(true, Shift::Shr, RAX, RDI, R9)); // shrx rax, rdi, r9
    case!("c4e2b2f7c7", |a| a.shift_by(true, Shift::Sar, RAX, RDI, R9)); // sarx rax, rdi, r9
    case!("c4e2f1f7c7", |a| a.shift_by(true, Shift::Shl, RAX, RDI, RCX)); // shlx rax, rdi, rcx
    case!("480fbec7", |a| a.sign_extend(true, Width::B1, RAX, RDI)); // movsx rax, dil
    case!("480fbfc7", |a| a.sign_extend(true, Width::B2, RAX, RDI)); // movsx rax, di
    case!("4989d8", |a| a.mov(true, R8, RBX)); // mov r8, rbx
    case!("4901d8", |a| a.alu(true, Alu::Add, R8, RBX)); // add r8, rbx
    case!("4909d8", |a| a.alu(true, Alu::Or, R8, RBX)); // or r8, rbx
    case!("4921d8", |a| a.alu(true, Alu::And, R8, RBX)); // and r8, rbx
    case!("4929d8", |a| a.alu(true, Alu::Sub, R8, RBX)); // sub r8, rbx
    case!("4931d8", |a| a.alu(true, Alu::Xor, R8, RBX)); // xor r8, rbx
    case!("4939d8", |a| a.alu(true, Alu::Cmp, R8, RBX)); // cmp r8, rbx
    case!("4985d8", |a| a.test(true, R8, RBX)); // test r8, rbx
    case!("4c0fafc3", |a| a.imul(true, R8, RBX)); // imul r8, rbx
    case!("4c69c3a0860100", |a| a.imul_imm(true, R8, RBX, 100_000)); // imul r8, rbx, 100000
    case!("c462b1f7c3", |a| a.shift_by(true, Shift::Shl, R8, RBX, R9)); // shlx r8, rbx, r9
    case!("c462b3f7c3", |a| a.shift_by(true, Shift::Shr, R8, RBX, R9)); // shrx r8, rbx, r9
    case!("c462b2f7c3", |a| a.shift_by(true, Shift::Sar, R8, RBX, R9)); // sarx r8, rbx, r9
    case!("c462f1f7c3", |a| a.shift_by(true, Shift::Shl, R8, RBX, RCX)); // shlx r8, rbx, rcx
    case!("4c0fbec3", |a| a.sign_extend(true, Width::B1, R8, RBX)); // movsx r8, bl
    case!("4c0fbfc3", |a| a.sign_extend(true, Width::B2, R8, RBX)); // movsx r8, bx
    case!("4d89e5", |a| a.mov(true, R13, R12)); // mov r13, r12
    case!("4d01e5", |a| a.alu(true, Alu::Add, R13, R12)); // add r13, r12
    case!("4d09e5", |a| a.alu(true, Alu::Or, R13, R12)); // or r13, r12
    case!("4d21e5", |a| a.alu(true, Alu::And, R13, R12)); // and r13, r12
    case!("4d29e5", |a| a.alu(true, Alu::Sub, R13, R12)); // sub r13, r12
    case!("4d31e5", |a| a.alu(true, Alu::Xor, R13, R12)); // xor r13, r12
    case!("4d39e5", |a| a.alu(true, Alu::Cmp, R13, R12)); // cmp r13, r12
    case!("4d85e5", |a| a.test(true, R13, R12)); // test r13, r12
    case!("4d0fafec", |a| a.imul(true, R13, R12)); // imul r13, r12
    case!("4d69eca0860100", |a| a.imul_imm(true, R13, R12, 100_000)); // imul r13, r12, 100000
    case!("c442b1f7ec", |a| a.shift_by(true, Shift::Shl, R13, R12, R9)); // shlx r13, r12, r9
    case!("c442b3f7ec", |a| a.shift_by(true, Shift::Shr, R13, R12, R9)); // shrx r13, r12, r9
    case!("c442b2f7ec", |a| a.shift_by(true, Shift::Sar, R13, R12, R9)); // sarx r13, r12, r9
    case!("c442f1f7ec", |a| a.shift_by(true, Shift::Shl, R13, R12, RCX)); // shlx r13, r12, rcx
    case!("4d0fbeec", |a| a.sign_extend(true, Width::B1, R13, R12)); // movsx r13, r12b
    case!("4d0fbfec", |a| a.sign_extend(true, Width::B2, R13, R12)); // movsx r13, r12w
    case!("4c89fd", |a| a.mov(true, RBP, R15)); // mov rbp, r15
    case!("4c01fd", |a| a.alu(true, Alu::Add, RBP, R15)); // add rbp, r15
    case!("4c09fd", |a| a.alu(true, Alu::Or, RBP, R15)); // or rbp, r15
    case!("4c21fd", |a| a.alu(true, Alu::And, RBP, R15)); // and rbp, r15
    case!("4c29fd", |a| a.alu(true, Alu::Sub, RBP, R15)); // sub rbp, r15
    case!("4c31fd", |a| a.alu(true, Alu::Xor, RBP, R15)); // xor rbp, r15
    case!("4c39fd", |a| a.alu(true, Alu::Cmp, RBP, R15)); // cmp rbp, r15
    case!("4c85fd", |a| a.test(true, RBP, R15)); // test rbp, r15
    case!("490fafef", |a| a.imul(true, RBP, R15)); // imul rbp, r15
    case!("4969efa0860100", |a| a.imul_imm(true, RBP, R15, 100_000)); // imul rbp, r15, 100000
    case!("c4c2b1f7ef", |a| a.shift_by(true, Shift::Shl, RBP, R15, R9)); // shlx rbp, r15, r9
    case!("c4c2b3f7ef", |a| a.shift_by(true, Shift::Shr, RBP, R15, R9)); // shrx rbp, r15, r9
    case!("c4c2b2f7ef", |a| a.shift_by(true, Shift::Sar, RBP, R15, R9)); // sarx rbp, r15, r9
    case!("c4c2f1f7ef", |a| a.shift_by(true, Shift::Shl, RBP, R15, RCX)); // shlx rbp, r15, rcx
    case!("490fbeef", |a| a.sign_extend(true, Width::B1, RBP, R15)); // movsx rbp, r15b
    case!("490fbfef", |a| a.sign_extend(true, Width::B2, RBP, R15)); // movsx rbp, r15w
    case!("4883c105", |a| a.alu_imm(true, Alu::Add, RCX, 5)); // add rcx, 5
    case!("4883c1fd", |a| a.alu_imm(true, Alu::Add, RCX, -3)); // add rcx, -3
    case!("4881c145230100", |a| a.alu_imm(true, Alu::Add, RCX, 74565)); // add rcx, 74565
    case!("4881c1bbdcfeff", |a| a.alu_imm(true, Alu::Add, RCX, -74565)); // add rcx, -74565
    case!("4881f970110100", |a| a.alu_imm(true, Alu::Cmp, RCX, 70_000)); // cmp rcx, 70000
    case!("48f7c170110100", |a| a.test_imm(true, RCX, 70_000)); // test rcx, 70000
    case!("48f7d9", |a| a.unary(true, Unary::Neg, RCX)); // neg rcx
    case!("48f7e1", |a| a.unary(true, Unary::Mul, RCX)); // mul rcx
    case!("48f7f1", |a| a.unary(true, Unary::Div, RCX)); // div rcx
    case!("48f7f9", |a| a.unary(true, Unary::Idiv, RCX)); // idiv rcx
    case!("48c1c107", |a| a.shift_imm(true, Shift::Rol, RCX, 7)); // rol rcx, 7
    case!("48d3c1", |a| a.shift_cl(true, Shift::Rol, RCX)); // rol rcx, cl
    case!("48c1e107", |a| a.shift_imm(true, Shift::Shl, RCX, 7)); // shl rcx, 7
    case!("48d3e1", |a| a.shift_cl(true, Shift::Shl, RCX)); // shl rcx, cl
    case!("48c1e907", |a| a.shift_imm(true, Shift::Shr, RCX, 7)); // shr rcx, 7
    case!("48d3e9", |a| a.shift_cl(true, Shift::Shr, RCX)); // shr rcx, cl
    case!("48c1f907", |a| a.shift_imm(true, Shift::Sar, RCX, 7)); // sar rcx, 7
    case!("48d3f9", |a| a.shift_cl(true, Shift::Sar, RCX)); // sar rcx, cl
    case!("480fc9", |a| a.bswap(true, RCX)); // bswap rcx
    case!("4883c505", |a| a.alu_imm(true, Alu::Add, RBP, 5)); // add rbp, 5
    case!("4883c5fd", |a| a.alu_imm(true, Alu::Add, RBP, -3)); // add rbp, -3
    case!("4881c545230100", |a| a.alu_imm(true, Alu::Add, RBP, 74565)); // add rbp, 74565
    case!("4881c5bbdcfeff", |a| a.alu_imm(true, Alu::Add, RBP, -74565)); // add rbp, -74565
    case!("4881fd70110100", |a| a.alu_imm(true, Alu::Cmp, RBP, 70_000)); // cmp rbp, 70000
    case!("48f7c570110100", |a| a.test_imm(true, RBP, 70_000)); // test rbp, 70000
    case!("48f7dd", |a| a.unary(true, Unary::Neg, RBP)); // neg rbp
    case!("48f7e5", |a| a.unary(true, Unary::Mul, RBP)); // mul rbp
    case!("48f7f5", |a| a.unary(true, Unary::Div, RBP)); // div rbp
    case!("48f7fd", |a| a.unary(true, Unary::Idiv, RBP)); // idiv rbp
    case!("48c1c507", |a| a.shift_imm(true, Shift::Rol, RBP, 7)); // rol rbp, 7
    case!("48d3c5", |a| a.shift_cl(true, Shift::Rol, RBP)); // rol rbp, cl
    case!("48c1e507", |a| a.shift_imm(true, Shift::Shl, RBP, 7)); // shl rbp, 7
    case!("48d3e5", |a| a.shift_cl(true, Shift::Shl, RBP)); // shl rbp, cl
    case!("48c1ed07", |a| a.shift_imm(true, Shift::Shr, RBP, 7)); // shr rbp, 7
    case!("48d3ed", |a| a.shift_cl(true, Shift::Shr, RBP)); // shr rbp, cl
    case!("48c1fd07", |a| a.shift_imm(true, Shift::Sar, RBP, 7)); // sar rbp, 7
    case!("48d3fd", |a| a.shift_cl(true, Shift::Sar, RBP)); // sar rbp, cl
    case!("480fcd", |a| a.bswap(true, RBP)); // bswap rbp
    case!("4983c405", |a| a.alu_imm(true, Alu::Add, R12, 5)); // add r12, 5
    case!("4983c4fd", |a| a.alu_imm(true, Alu::Add, R12, -3)); // add r12, -3
    case!("4981c445230100", |a| a.alu_imm(true, Alu::Add, R12, 74565)); // add r12, 74565
    case!("4981c4bbdcfeff", |a| a.alu_imm(true, Alu::Add, R12, -74565)); // add r12, -74565
    case!("4981fc70110100", |a| a.alu_imm(true, Alu::Cmp, R12, 70_000)); // cmp r12, 70000
    case!("49f7c470110100", |a| a.test_imm(true, R12, 70_000)); // test r12, 70000
    case!("49f7dc", |a| a.unary(true, Unary::Neg, R12)); // neg r12
    case!("49f7e4", |a| a.unary(true, Unary::Mul, R12)); // mul r12
    case!("49f7f4", |a| a.unary(true, Unary::Div, R12)); // div r12
    case!("49f7fc", |a| a.unary(true, Unary::Idiv, R12)); // idiv r12
    case!("49c1c407", |a| a.shift_imm(true, Shift::Rol, R12, 7)); // rol r12, 7
    case!("49d3c4", |a| a.shift_cl(true, Shift::Rol, R12)); // rol r12, cl
    case!("49c1e407", |a| a.shift_imm(true, Shift::Shl, R12, 7)); // shl r12, 7
    case!("49d3e4", |a| a.shift_cl(true, Shift::Shl, R12)); // shl r12, cl
    case!("49c1ec07", |a| a.shift_imm(true, Shift::Shr, R12, 7)); // shr r12, 7
    case!("49d3ec", |a| a.shift_cl(true, Shift::Shr, R12)); // shr r12, cl
    case!("49c1fc07", |a| a.shift_imm(true, Shift::Sar, R12, 7)); // sar r12, 7
    case!("49d3fc", |a| a.shift_cl(true, Shift::Sar, R12)); // sar r12, cl
    case!("490fcc", |a| a.bswap(true, R12)); // bswap r12
    case!("4899", |a| a.sign_to_rdx(true)); // cqo
    case!("4c3b00", |a| a.alu_load(true, Alu::Cmp, R8, at(RAX, 0))); // cmp r8, qword ptr [rax+0]
    case!("48832801", |a| a.alu_mem_imm(true, Alu::Sub, at(RAX, 0), 1)); // sub qword ptr [rax+0], 1
    case!("48813800100000", |a| a.alu_mem_imm(true, Alu::Cmp, at(RAX, 0), 4096)); // cmp qword ptr [rax+0], 4096
    case!("f0480130", |a| a.lock_alu(true, Alu::Add, at(RAX, 0), RSI)); // lock add qword ptr [rax+0], rsi
    case!("f04c0fc138", |a| a.lock_xadd(true, at(RAX, 0), R15)); // lock xadd qword ptr [rax+0], r15
    case!("488718", |a| a.xchg(true, at(RAX, 0), RBX)); // xchg qword ptr [rax+0], rbx
    case!("f04c0fb108", |a| a.lock_cmpxchg(true, at(RAX, 0), R9)); // lock cmpxchg qword ptr [rax+0], r9
    case!("4c3b4500", |a| a.alu_load(true, Alu::Cmp, R8, at(RBP, 0))); // cmp r8, qword ptr [rbp+0]
    case!("48836d0001", |a| a.alu_mem_imm(true, Alu::Sub, at(RBP, 0), 1)); // sub qword ptr [rbp+0], 1
    case!("48817d0000100000", |a| a.alu_mem_imm(true, Alu::Cmp, at(RBP, 0), 4096)); // cmp qword ptr [rbp+0], 4096
    case!("f048017500", |a| a.lock_alu(true, Alu::Add, at(RBP, 0), RSI)); // lock add qword ptr [rbp+0], rsi
    case!("f04c0fc17d00", |a| a.lock_xadd(true, at(RBP, 0), R15)); // lock xadd qword ptr [rbp+0], r15
    case!("48875d00", |a| a.xchg(true, at(RBP, 0), RBX)); // xchg qword ptr [rbp+0], rbx
    case!("f04c0fb14d00", |a| a.lock_cmpxchg(true, at(RBP, 0), R9)); // lock cmpxchg qword ptr [rbp+0], r9
    case!("4d3b4500", |a| a.alu_load(true, Alu::Cmp, R8, at(R13, 0))); // cmp r8, qword ptr [r13+0]
    case!("49836d0001", |a| a.alu_mem_imm(true, Alu::Sub, at(R13, 0), 1)); // sub qword ptr [r13+0], 1
    case!("49817d0000100000", |a| a.alu_mem_imm(true, Alu::Cmp, at(R13, 0), 4096)); // cmp qword ptr [r13+0], 4096
    case!("f049017500", |a| a.lock_alu(true, Alu::Add, at(R13, 0), RSI)); // lock add qword ptr [r13+0], rsi
    case!("f04d0fc17d00", |a| a.lock_xadd(true, at(R13, 0), R15)); // lock xadd qword ptr [r13+0], r15
    case!("49875d00", |a| a.xchg(true, at(R13, 0), RBX)); // xchg qword ptr [r13+0], rbx
    case!("f04d0fb14d00", |a| a.lock_cmpxchg(true, at(R13, 0), R9)); // lock cmpxchg qword ptr [r13+0], r9
    case!("4c3b442408", |a| a.alu_load(true, Alu::Cmp, R8, at(RSP, 8))); // cmp r8, qword ptr [rsp+8]
    case!("48836c240801", |a| a.alu_mem_imm(true, Alu::Sub, at(RSP, 8), 1)); // sub qword ptr [rsp+8], 1
    case!("48817c240800100000", |a| a.alu_mem_imm(true, Alu::Cmp, at(RSP, 8), 4096)); // cmp qword ptr [rsp+8], 4096
    case!("f04801742408", |a| a.lock_alu(true, Alu::Add, at(RSP, 8), RSI)); // lock add qword ptr [rsp+8], rsi
    case!("f04c0fc17c2408", |a| a.lock_xadd(true, at(RSP, 8), R15)); // lock xadd qword ptr [rsp+8], r15
    case!("48875c2408", |a| a.xchg(true, at(RSP, 8), RBX)); // xchg qword ptr [rsp+8], rbx
    case!("f04c0fb14c2408", |a| a.lock_cmpxchg(true, at(RSP, 8), R9)); // lock cmpxchg qword ptr [rsp+8], r9
    case!("4d3b0424", |a| a.alu_load(true, Alu::Cmp, R8, at(R12, 0))); // cmp r8, qword ptr [r12+0]
    case!("49832c2401", |a| a.alu_mem_imm(true, Alu::Sub, at(R12, 0), 1)); // sub qword ptr [r12+0], 1
    case!("49813c2400100000", |a| a.alu_mem_imm(true, Alu::Cmp, at(R12, 0), 4096)); // cmp qword ptr [r12+0], 4096
    case!("f049013424", |a| a.lock_alu(true, Alu::Add, at(R12, 0), RSI)); // lock add qword ptr [r12+0], rsi
    case!("f04d0fc13c24", |a| a.lock_xadd(true, at(R12, 0), R15)); // lock xadd qword ptr [r12+0], r15
    case!("49871c24", |a| a.xchg(true, at(R12, 0), RBX)); // xchg qword ptr [r12+0], rbx
    case!("f04d0fb10c24", |a| a.lock_cmpxchg(true, at(R12, 0), R9)); // lock cmpxchg qword ptr [r12+0], r9
    case!("4d3b4424f8", |a| a.alu_load(true, Alu::Cmp, R8, at(R12, -8))); // cmp r8, qword ptr [r12-8]
    case!("49836c24f801", |a| a.alu_mem_imm(true, Alu::Sub, at(R12, -8), 1)); // sub qword ptr [r12-8], 1
    case!("49817c24f800100000", |a| a.alu_mem_imm(true, Alu::Cmp, at(R12, -8), 4096)); // cmp qword ptr [r12-8], 4096
    case!("f049017424f8", |a| a.lock_alu(true, Alu::Add, at(R12, -8), RSI)); // lock add qword ptr [r12-8], rsi
    case!("f04d0fc17c24f8", |a| a.lock_xadd(true, at(R12, -8), R15)); // lock xadd qword ptr [r12-8], r15
    case!("49875c24f8", |a| a.xchg(true, at(R12, -8), RBX)); // xchg qword ptr [r12-8], rbx
    case!("f04d0fb14c24f8", |a| a.lock_cmpxchg(true, at(R12, -8), R9)); // lock cmpxchg qword ptr [r12-8], r9
    case!("4c3b87e8030000", |a| a.alu_load(true, Alu::Cmp, R8, at(RDI, 1000))); // cmp r8, qword ptr [rdi+1000]
    case!("4883afe803000001", |a| a.alu_mem_imm(true, Alu::Sub, at(RDI, 1000), 1)); // sub qword ptr [rdi+1000], 1
    case!("4881bfe803000000100000", |a| a.alu_mem_imm(true, Alu::Cmp, at(RDI, 1000), 4096)); // cmp qword ptr [rdi+1000], 4096
    case!("f04801b7e8030000", |a| a.lock_alu(true, Alu::Add, at(RDI, 1000), RSI)); // lock add qword ptr [rdi+1000], rsi
    case!("f04c0fc1bfe8030000", |a| a.lock_xadd(true, at(RDI, 1000), R15)); // lock xadd qword ptr [rdi+1000], r15
    case!("48879fe8030000", |a| a.xchg(true, at(RDI, 1000), RBX)); // xchg qword ptr [rdi+1000], rbx
    case!("f04c0fb18fe8030000", |a| a.lock_cmpxchg(true, at(RDI, 1000), R9)); // lock cmpxchg qword ptr [rdi+1000], r9
    case!("4d3b04c2", |a| a.alu_load(true, Alu::Cmp, R8, Mem { base: R10, index: Some((RAX, 3)), disp: 0 })); // cmp r8, qword ptr [r10+rax*8+0]
    case!("49832cc201", |a| a.alu_mem_imm(true, Alu::Sub, Mem { base: R10, index: Some((RAX, 3)), disp: 0 }, 1)); // sub qword ptr [r10+rax*8+0], 1
    case!("49813cc200100000", |a| a.alu_mem_imm(true, Alu::Cmp, Mem { base: R10, index: Some((RAX, 3)), disp: 0 }, 4096)); // cmp qword ptr [r10+rax*8+0], 4096
    case!("f0490134c2", |a| a.lock_alu(true, Alu::Add, Mem { base: R10, index: Some((RAX, 3)), disp: 0 }, RSI)); // lock add qword ptr [r10+rax*8+0], rsi
    case!("f04d0fc13cc2", |a| a.lock_xadd(true, Mem { base: R10, index: Some((RAX, 3)), disp: 0 }, R15)); // lock xadd qword ptr [r10+rax*8+0], r15
    case!("49871cc2", |a| a.xchg(true, Mem { base: R10, index: Some((RAX, 3)), disp: 0 }, RBX)); // xchg qword ptr [r10+rax*8+0], rbx
    case!("f04d0fb10cc2", |a| a.lock_cmpxchg(true, Mem { base: R10, index: Some((RAX, 3)), disp: 0 }, R9)); // lock cmpxchg qword ptr [r10+rax*8+0], r9
    case!("4f3b448d04", |a| a.alu_load(true, Alu::Cmp, R8, Mem { base: R13, index: Some((R9, 2)), disp: 4 })); // cmp r8, qword ptr [r13+r9*4+4]
    case!("4b836c8d0401", |a| a.alu_mem_imm(true, Alu::Sub, Mem { base: R13, index: Some((R9, 2)), disp: 4 }, 1)); // sub qword ptr [r13+r9*4+4], 1
    case!("4b817c8d0400100000", |a| a.alu_mem_imm(true, Alu::Cmp, Mem { base: R13, index: Some((R9, 2)), disp: 4 }, 4096)); // cmp qword ptr [r13+r9*4+4], 4096
    case!("f04b01748d04", |a| a.lock_alu(true, Alu::Add, Mem { base: R13, index: Some((R9, 2)), disp: 4 }, RSI)); // lock add qword ptr [r13+r9*4+4], rsi
    case!("f04f0fc17c8d04", |a| a.lock_xadd(true, Mem { base: R13, index: Some((R9, 2)), disp: 4 }, R15)); // lock xadd qword ptr [r13+r9*4+4], r15
    case!("4b875c8d04", |a| a.xchg(true, Mem { base: R13, index: Some((R9, 2)), disp: 4 }, RBX)); // xchg qword ptr [r13+r9*4+4], rbx
    case!("f04f0fb14c8d04", |a| a.lock_cmpxchg(true, Mem { base: R13, index: Some((R9, 2)), disp: 4 }, R9)); // lock cmpxchg qword ptr [r13+r9*4+4], r9
    case!("4963fe", |a| a.sign_extend(true, Width::B4, RDI, R14)); // movsxd rdi, r14d
    case!("400fb6c7", |a| a.zero_extend(Width::B1, RAX, RDI)); // movzx eax, dil
    case!("0fb7c7", |a| a.zero_extend(Width::B2, RAX, RDI)); // movzx eax, di
    case!("440fb6c3", |a| a.zero_extend(Width::B1, R8, RBX)); // movzx r8d, bl
    case!("440fb7c3", |a| a.zero_extend(Width::B2, R8, RBX)); // movzx r8d, bx
    case!("440fb6ee", |a| a.zero_extend(Width::B1, R13, RSI)); // movzx r13d, sil
    case!("440fb7ee", |a| a.zero_extend(Width::B2, R13, RSI)); // movzx r13d, si
    case!("410fb6ef", |a| a.zero_extend(Width::B1, RBP, R15)); // movzx ebp, r15b
    case!("410fb7ef", |a| a.zero_extend(Width::B2, RBP, R15)); // movzx ebp, r15w
    case!("0fb600", |a| a.load(Width::B1, RAX, at(RAX, 0))); // movzx eax, byte ptr [rax+0]
    case!("480fbe00", |a| a.load_signed(Width::B1, RAX, at(RAX, 0))); // movsx rax, byte ptr [rax+0]
    case!("8800", |a| a.store(Width::B1, at(RAX, 0), RAX)); // mov byte ptr [rax+0], al
    case!("c6004d", |a| a.store_imm(Width::B1, at(RAX, 0), 77)); // mov byte ptr [rax+0], 77
    case!("0fb700", |a| a.load(Width::B2, RAX, at(RAX, 0))); // movzx eax, word ptr [rax+0]
    case!("480fbf00", |a| a.load_signed(Width::B2, RAX, at(RAX, 0))); // movsx rax, word ptr [rax+0]
    case!("668900", |a| a.store(Width::B2, at(RAX, 0), RAX)); // mov word ptr [rax+0], ax
    case!("66c7004d00", |a| a.store_imm(Width::B2, at(RAX, 0), 77)); // mov word ptr [rax+0], 77
    case!("8b00", |a| a.load(Width::B4, RAX, at(RAX, 0))); // mov eax, dword ptr [rax+0]
    case!("486300", |a| a.load_signed(Width::B4, RAX, at(RAX, 0))); // movsxd rax, dword ptr [rax+0]
    case!("8900", |a| a.store(Width::B4, at(RAX, 0), RAX)); // mov dword ptr [rax+0], eax
    case!("c7004d000000", |a| a.store_imm(Width::B4, at(RAX, 0), 77)); // mov dword ptr [rax+0], 77
    case!("488b00", |a| a.load(Width::B8, RAX, at(RAX, 0))); // mov rax, qword ptr [rax+0]
    case!("488900", |a| a.store(Width::B8, at(RAX, 0), RAX)); // mov qword ptr [rax+0], rax
    case!("48c7004d000000", |a| a.store_imm(Width::B8, at(RAX, 0), 77)); // mov qword ptr [rax+0], 77
    case!("0fb630", |a| a.load(Width::B1, RSI, at(RAX, 0))); // movzx esi, byte ptr [rax+0]
    case!("480fbe30", |a| a.load_signed(Width::B1, RSI, at(RAX, 0))); // movsx rsi, byte ptr [rax+0]
    case!("408830", |a| a.store(Width::B1, at(RAX, 0), RSI)); // mov byte ptr [rax+0], sil
    case!("0fb730", |a| a.load(Width::B2, RSI, at(RAX, 0))); // movzx esi, word ptr [rax+0]
    case!("480fbf30", |a| a.load_signed(Width::B2, RSI, at(RAX, 0))); // movsx rsi, word ptr [rax+0]
    case!("668930", |a| a.store(Width::B2, at(RAX, 0), RSI)); // mov word ptr [rax+0], si
    case!("8b30", |a| a.load(Width::B4, RSI, at(RAX, 0))); // mov esi, dword ptr [rax+0]
    case!("486330", |a| a.load_signed(Width::B4, RSI, at(RAX, 0))); // movsxd rsi, dword ptr [rax+0]
    case!("8930", |a| a.store(Width::B4, at(RAX, 0), RSI)); // mov dword ptr [rax+0], esi
    case!("488b30", |a| a.load(Width::B8, RSI, at(RAX, 0))); // mov rsi, qword ptr [rax+0]
    case!("488930", |a| a.store(Width::B8, at(RAX, 0), RSI)); // mov qword ptr [rax+0], rsi
    case!("440fb638", |a| a.load(Width::B1, R15, at(RAX, 0))); // movzx r15d, byte ptr [rax+0]
    case!("4c0fbe38", |a| a.load_signed(Width::B1, R15, at(RAX, 0))); // movsx r15, byte ptr [rax+0]
    case!("448838", |a| a.store(Width::B1, at(RAX, 0), R15)); // mov byte ptr [rax+0], r15b
    case!("440fb738", |a| a.load(Width::B2, R15, at(RAX, 0))); // movzx r15d, word ptr [rax+0]
    case!("4c0fbf38", |a| a.load_signed(Width::B2, R15, at(RAX, 0))); // movsx r15, word ptr [rax+0]
    case!("66448938", |a| a.store(Width::B2, at(RAX, 0), R15)); // mov word ptr [rax+0], r15w
    case!("448b38", |a| a.load(Width::B4, R15, at(RAX, 0))); // mov r15d, dword ptr [rax+0]
    case!("4c6338", |a| a.load_signed(Width::B4, R15, at(RAX, 0))); // movsxd r15, dword ptr [rax+0]
    case!("448938", |a| a.store(Width::B4, at(RAX, 0), R15)); // mov dword ptr [rax+0], r15d
    case!("4c8b38", |a| a.load(Width::B8, R15, at(RAX, 0))); // mov r15, qword ptr [rax+0]
    case!("4c8938", |a| a.store(Width::B8, at(RAX, 0), R15)); // mov qword ptr [rax+0], r15
    case!("4c8d18", |a| a.lea(R11, at(RAX, 0))); // lea r11, [rax+0]
    case!("0fb645f0", |a| a.load(Width::B1, RAX, at(RBP, -16))); // movzx eax, byte ptr [rbp-16]
    case!("480fbe45f0", |a| a.load_signed(Width::B1, RAX, at(RBP, -16))); // movsx rax, byte ptr [rbp-16]
    case!("8845f0", |a| a.store(Width::B1, at(RBP, -16), RAX)); // mov byte ptr [rbp-16], al
    case!("c645f04d", |a| a.store_imm(Width::B1, at(RBP, -16), 77)); // mov byte ptr [rbp-16], 77
    case!("0fb745f0", |a| a.load(Width::B2, RAX, at(RBP, -16))); // movzx eax, word ptr [rbp-16]
    case!("480fbf45f0", |a| a.load_signed(Width::B2, RAX, at(RBP, -16))); // movsx rax, word ptr [rbp-16]
    case!("668945f0", |a| a.store(Width::B2, at(RBP, -16), RAX)); // mov word ptr [rbp-16], ax
    case!("66c745f04d00", |a| a.store_imm(Width::B2, at(RBP, -16), 77)); // mov word ptr [rbp-16], 77
    case!("8b45f0", |a| a.load(Width::B4, RAX, at(RBP, -16))); // mov eax, dword ptr [rbp-16]
    case!("486345f0", |a| a.load_signed(Width::B4, RAX, at(RBP, -16))); // movsxd rax, dword ptr [rbp-16]
    case!("8945f0", |a| a.store(Width::B4, at(RBP, -16), RAX)); // mov dword ptr [rbp-16], eax
    case!("c745f04d000000", |a| a.store_imm(Width::B4, at(RBP, -16), 77)); // mov dword ptr [rbp-16], 77
    case!("488b45f0", |a| a.load(Width::B8, RAX, at(RBP, -16))); // mov rax, qword ptr [rbp-16]
    case!("488945f0", |a| a.store(Width::B8, at(RBP, -16), RAX)); // mov qword ptr [rbp-16], rax
    case!("48c745f04d000000", |a| a.store_imm(Width::B8, at(RBP, -16), 77)); // mov qword ptr [rbp-16], 77
    case!("0fb675f0", |a| a.load(Width::B1, RSI, at(RBP, -16))); // movzx esi, byte ptr [rbp-16]
    case!("480fbe75f0", |a| a.load_signed(Width::B1, RSI, at(RBP, -16))); // movsx rsi, byte ptr [rbp-16]
    case!("408875f0", |a| a.store(Width::B1, at(RBP, -16), RSI)); // mov byte ptr [rbp-16], sil
    case!("0fb775f0", |a| a.load(Width::B2, RSI, at(RBP, -16))); // movzx esi, word ptr [rbp-16]
    case!("480fbf75f0", |a| a.load_signed(Width::B2, RSI, at(RBP, -16))); // movsx rsi, word ptr [rbp-16]
    case!("668975f0", |a| a.store(Width::B2, at(RBP, -16), RSI)); // mov word ptr [rbp-16], si
    case!("8b75f0", |a| a.load(Width::B4, RSI, at(RBP, -16))); // mov esi, dword ptr [rbp-16]
    case!("486375f0", |a| a.load_signed(Width::B4, RSI, at(RBP, -16))); // movsxd rsi, dword ptr [rbp-16]
    case!("8975f0", |a| a.store(Width::B4, at(RBP, -16), RSI)); // mov dword ptr [rbp-16], esi
    case!("488b75f0", |a| a.load(Width::B8, RSI, at(RBP, -16))); // mov rsi, qword ptr [rbp-16]
    case!("488975f0", |a| a.store(Width::B8, at(RBP, -16), RSI)); // mov qword ptr [rbp-16], rsi
    case!("440fb67df0", |a| a.load(Width::B1, R15, at(RBP, -16))); // movzx r15d, byte ptr [rbp-16]
    case!("4c0fbe7df0", |a| a.load_signed(Width::B1, R15, at(RBP, -16))); // movsx r15, byte ptr [rbp-16]
    case!("44887df0", |a| a.store(Width::B1, at(RBP, -16), R15)); // mov byte ptr [rbp-16], r15b
    case!("440fb77df0", |a| a.load(Width::B2, R15, at(RBP, -16))); // movzx r15d, word ptr [rbp-16]
    case!("4c0fbf7df0", |a| a.load_signed(Width::B2, R15, at(RBP, -16))); // movsx r15, word ptr [rbp-16]
    case!("6644897df0", |a| a.store(Width::B2, at(RBP, -16), R15)); // mov word ptr [rbp-16], r15w
    case!("448b7df0", |a| a.load(Width::B4, R15, at(RBP, -16))); // mov r15d, dword ptr [rbp-16]
    case!("4c637df0", |a| a.load_signed(Width::B4, R15, at(RBP, -16))); // movsxd r15, dword ptr [rbp-16]
    case!("44897df0", |a| a.store(Width::B4, at(RBP, -16), R15)); // mov dword ptr [rbp-16], r15d
    case!("4c8b7df0", |a| a.load(Width::B8, R15, at(RBP, -16))); // mov r15, qword ptr [rbp-16]
    case!("4c897df0", |a| a.store(Width::B8, at(RBP, -16), R15)); // mov qword ptr [rbp-16], r15
    case!("4c8d5df0", |a| a.lea(R11, at(RBP, -16))); // lea r11, [rbp-16]
    case!("0fb6442418", |a| a.load(Width::B1, RAX, at(RSP, 24))); // movzx eax, byte ptr [rsp+24]
    case!("480fbe442418", |a| a.load_signed(Width::B1, RAX, at(RSP, 24))); // movsx rax, byte ptr [rsp+24]
    case!("88442418", |a| a.store(Width::B1, at(RSP, 24), RAX)); // mov byte ptr [rsp+24], al
    case!("c64424184d", |a| a.store_imm(Width::B1, at(RSP, 24), 77)); // mov byte ptr [rsp+24], 77
    case!("0fb7442418", |a| a.load(Width::B2, RAX, at(RSP, 24))); // movzx eax, word ptr [rsp+24]
    case!("480fbf442418", |a| a.load_signed(Width::B2, RAX, at(RSP, 24))); // movsx rax, word ptr [rsp+24]
    case!("6689442418", |a| a.store(Width::B2, at(RSP, 24), RAX)); // mov word ptr [rsp+24], ax
    case!("66c74424184d00", |a| a.store_imm(Width::B2, at(RSP, 24), 77)); // mov word ptr [rsp+24], 77
    case!("8b442418", |a| a.load(Width::B4, RAX, at(RSP, 24))); // mov eax, dword ptr [rsp+24]
    case!("4863442418", |a| a.load_signed(Width::B4, RAX, at(RSP, 24))); // movsxd rax, dword ptr [rsp+24]
    case!("89442418", |a| a.store(Width::B4, at(RSP, 24), RAX)); // mov dword ptr [rsp+24], eax
    case!("c74424184d000000", |a| a.store_imm(Width::B4, at(RSP, 24), 77)); // mov dword ptr [rsp+24], 77
    case!("488b442418", |a| a.load(Width::B8, RAX, at(RSP, 24))); // mov rax, qword ptr [rsp+24]
    case!("4889442418", |a| a.store(Width::B8, at(RSP, 24), RAX)); // mov qword ptr [rsp+24], rax
    case!("48c74424184d000000", |a| a.store_imm(Width::B8, at(RSP, 24), 77)); // mov qword ptr [rsp+24], 77
    case!("0fb6742418", |a| a.load(Width::B1, RSI, at(RSP, 24))); // movzx esi, byte ptr [rsp+24]
    case!("480fbe742418", |a| a.load_signed(Width::B1, RSI, at(RSP, 24))); // movsx rsi, byte ptr [rsp+24]
    case!("4088742418", |a| a.store(Width::B1, at(RSP, 24), RSI)); // mov byte ptr [rsp+24], sil
    case!("0fb7742418", |a| a.load(Width::B2, RSI, at(RSP, 24))); // movzx esi, word ptr [rsp+24]
    case!("480fbf742418", |a| a.load_signed(Width::B2, RSI, at(RSP, 24))); // movsx rsi, word ptr [rsp+24]
    case!("6689742418", |a| a.store(Width::B2, at(RSP, 24), RSI)); // mov word ptr [rsp+24], si
    case!("8b742418", |a| a.load(Width::B4, RSI, at(RSP, 24))); // mov esi, dword ptr [rsp+24]
    case!("4863742418", |a| a.load_signed(Width::B4, RSI, at(RSP, 24))); // movsxd rsi, dword ptr [rsp+24]
    case!("89742418", |a| a.store(Width::B4, at(RSP, 24), RSI)); // mov dword ptr [rsp+24], esi
    case!("488b742418", |a| a.load(Width::B8, RSI, at(RSP, 24))); // mov rsi, qword ptr [rsp+24]
    case!("4889742418", |a| a.store(Width::B8, at(RSP, 24), RSI)); // mov qword ptr [rsp+24], rsi
    case!("440fb67c2418", |a| a.load(Width::B1, R15, at(RSP, 24))); // movzx r15d, byte ptr [rsp+24]
    case!("4c0fbe7c2418", |a| a.load_signed(Width::B1, R15, at(RSP, 24))); // movsx r15, byte ptr [rsp+24]
    case!("44887c2418", |a| a.store(Width::B1, at(RSP, 24), R15)); // mov byte ptr [rsp+24], r15b
    case!("440fb77c2418", |a| a.load(Width::B2, R15, at(RSP, 24))); // movzx r15d, word ptr [rsp+24]
    case!("4c0fbf7c2418", |a| a.load_signed(Width::B2, R15, at(RSP, 24))); // movsx r15, word ptr [rsp+24]
    case!("6644897c2418", |a| a.store(Width::B2, at(RSP, 24), R15)); // mov word ptr [rsp+24], r15w
    case!("448b7c2418", |a| a.load(Width::B4, R15, at(RSP, 24))); // mov r15d, dword ptr [rsp+24]
    case!("4c637c2418", |a| a.load_signed(Width::B4, R15, at(RSP, 24))); // movsxd r15, dword ptr [rsp+24]
    case!("44897c2418", |a| a.store(Width::B4, at(RSP, 24), R15)); // mov dword ptr [rsp+24], r15d
    case!("4c8b7c2418", |a| a.load(Width::B8, R15, at(RSP, 24))); // mov r15, qword ptr [rsp+24]
    case!("4c897c2418", |a| a.store(Width::B8, at(RSP, 24), R15)); // mov qword ptr [rsp+24], r15
    case!("4c8d5c2418", |a| a.lea(R11, at(RSP, 24))); // lea r11, [rsp+24]
    case!("410fb684242c010000", |a| a.load(Width::B1, RAX, at(R12, 300))); // movzx eax, byte ptr [r12+300]
    case!("490fbe84242c010000", |a| a.load_signed(Width::B1, RAX, at(R12, 300))); // movsx rax, byte ptr [r12+300]
    case!("418884242c010000", |a| a.store(Width::B1, at(R12, 300), RAX)); // mov byte ptr [r12+300], al
    case!("41c684242c0100004d", |a| a.store_imm(Width::B1, at(R12, 300), 77)); // mov byte ptr [r12+300], 77
    case!("410fb784242c010000", |a| a.load(Width::B2, RAX, at(R12, 300))); // movzx eax, word ptr [r12+300]
    case!("490fbf84242c010000", |a| a.load_signed(Width::B2, RAX, at(R12, 300))); // movsx rax, word ptr [r12+300]
    case!("66418984242c010000", |a| a.store(Width::B2, at(R12, 300), RAX)); // mov word ptr [r12+300], ax
    case!("6641c784242c0100004d00", |a| a.store_imm(Width::B2, at(R12, 300), 77)); // mov word ptr [r12+300], 77
    case!("418b84242c010000", |a| a.load(Width::B4, RAX, at(R12, 300))); // mov eax, dword ptr [r12+300]
    case!("496384242c010000", |a| a.load_signed(Width::B4, RAX, at(R12, 300))); // movsxd rax, dword ptr [r12+300]
    case!("418984242c010000", |a| a.store(Width::B4, at(R12, 300), RAX)); // mov dword ptr [r12+300], eax
    case!("41c784242c0100004d000000", |a| a.store_imm(Width::B4, at(R12, 300), 77)); // mov dword ptr [r12+300], 77
    case!("498b84242c010000", |a| a.load(Width::B8, RAX, at(R12, 300))); // mov rax, qword ptr [r12+300]
    case!("498984242c010000", |a| a.store(Width::B8, at(R12, 300), RAX)); // mov qword ptr [r12+300], rax
    case!("49c784242c0100004d000000", |a| a.store_imm(Width::B8, at(R12, 300), 77)); // mov qword ptr [r12+300], 77
    case!("410fb6b4242c010000", |a| a.load(Width::B1, RSI, at(R12, 300))); // movzx esi, byte ptr [r12+300]
    case!("490fbeb4242c010000", |a| a.load_signed(Width::B1, RSI, at(R12, 300))); // movsx rsi, byte ptr [r12+300]
    case!("4188b4242c010000", |a| a.store(Width::B1, at(R12, 300), RSI)); // mov byte ptr [r12+300], sil
    case!("410fb7b4242c010000", |a| a.load(Width::B2, RSI, at(R12, 300))); // movzx esi, word ptr [r12+300]
    case!("490fbfb4242c010000", |a| a.load_signed(Width::B2, RSI, at(R12, 300))); // movsx rsi, word ptr [r12+300]
    case!("664189b4242c010000", |a| a.store(Width::B2, at(R12, 300), RSI)); // mov word ptr [r12+300], si
    case!("418bb4242c010000", |a| a.load(Width::B4, RSI, at(R12, 300))); // mov esi, dword ptr [r12+300]
    case!("4963b4242c010000", |a| a.load_signed(Width::B4, RSI, at(R12, 300))); // movsxd rsi, dword ptr [r12+300]
    case!("4189b4242c010000", |a| a.store(Width::B4, at(R12, 300), RSI)); // mov dword ptr [r12+300], esi
    case!("498bb4242c010000", |a| a.load(Width::B8, RSI, at(R12, 300))); // mov rsi, qword ptr [r12+300]
    case!("4989b4242c010000", |a| a.store(Width::B8, at(R12, 300), RSI)); // mov qword ptr [r12+300], rsi
    case!("450fb6bc242c010000", |a| a.load(Width::B1, R15, at(R12, 300))); // movzx r15d, byte ptr [r12+300]
    case!("4d0fbebc242c010000", |a| a.load_signed(Width::B1, R15, at(R12, 300))); // movsx r15, byte ptr [r12+300]
    case!("4588bc242c010000", |a| a.store(Width::B1, at(R12, 300), R15)); // mov byte ptr [r12+300], r15b
    case!("450fb7bc242c010000", |a| a.load(Width::B2, R15, at(R12, 300))); // movzx r15d, word ptr [r12+300]
    case!("4d0fbfbc242c010000", |a| a.load_signed(Width::B2, R15, at(R12, 300))); // movsx r15, word ptr [r12+300]
    case!("664589bc242c010000", |a| a.store(Width::B2, at(R12, 300), R15)); // mov word ptr [r12+300], r15w
    case!("458bbc242c010000", |a| a.load(Width::B4, R15, at(R12, 300))); // mov r15d, dword ptr [r12+300]
    case!("4d63bc242c010000", |a| a.load_signed(Width::B4, R15, at(R12, 300))); // movsxd r15, dword ptr [r12+300]
    case!("4589bc242c010000", |a| a.store(Width::B4, at(R12, 300), R15)); // mov dword ptr [r12+300], r15d
    case!("4d8bbc242c010000", |a| a.load(Width::B8, R15, at(R12, 300))); // mov r15, qword ptr [r12+300]
    case!("4d89bc242c010000", |a| a.store(Width::B8, at(R12, 300), R15)); // mov qword ptr [r12+300], r15
    case!("4d8d9c242c010000", |a| a.lea(R11, at(R12, 300))); // lea r11, [r12+300]
    case!("410fb64500", |a| a.load(Width::B1, RAX, at(R13, 0))); // movzx eax, byte ptr [r13+0]
    case!("490fbe4500", |a| a.load_signed(Width::B1, RAX, at(R13, 0))); // movsx rax, byte ptr [r13+0]
    case!("41884500", |a| a.store(Width::B1, at(R13, 0), RAX)); // mov byte ptr [r13+0], al
    case!("41c645004d", |a| a.store_imm(Width::B1, at(R13, 0), 77)); // mov byte ptr [r13+0], 77
    case!("410fb74500", |a| a.load(Width::B2, RAX, at(R13, 0))); // movzx eax, word ptr [r13+0]
    case!("490fbf4500", |a| a.load_signed(Width::B2, RAX, at(R13, 0))); // movsx rax, word ptr [r13+0]
    case!("6641894500", |a| a.store(Width::B2, at(R13, 0), RAX)); // mov word ptr [r13+0], ax
    case!("6641c745004d00", |a| a.store_imm(Width::B2, at(R13, 0), 77)); // mov word ptr [r13+0], 77
    case!("418b4500", |a| a.load(Width::B4, RAX, at(R13, 0))); // mov eax, dword ptr [r13+0]
    case!("49634500", |a| a.load_signed(Width::B4, RAX, at(R13, 0))); // movsxd rax, dword ptr [r13+0]
    case!("41894500", |a| a.store(Width::B4, at(R13, 0), RAX)); // mov dword ptr [r13+0], eax
    case!("41c745004d000000", |a| a.store_imm(Width::B4, at(R13, 0), 77)); // mov dword ptr [r13+0], 77
    case!("498b4500", |a| a.load(Width::B8, RAX, at(R13, 0))); // mov rax, qword ptr [r13+0]
    case!("49894500", |a| a.store(Width::B8, at(R13, 0), RAX)); // mov qword ptr [r13+0], rax
    case!("49c745004d000000", |a| a.store_imm(Width::B8, at(R13, 0), 77)); // mov qword ptr [r13+0], 77
    case!("410fb67500", |a| a.load(Width::B1, RSI, at(R13, 0))); // movzx esi, byte ptr [r13+0]
    case!("490fbe7500", |a| a.load_signed(Width::B1, RSI, at(R13, 0))); // movsx rsi, byte ptr [r13+0]
    case!("41887500", |a| a.store(Width::B1, at(R13, 0), RSI)); // mov byte ptr [r13+0], sil
    case!("410fb77500", |a| a.load(Width::B2, RSI, at(R13, 0))); // movzx esi, word ptr [r13+0]
    case!("490fbf7500", |a| a.load_signed(Width::B2, RSI, at(R13, 0))); // movsx rsi, word ptr [r13+0]
    case!("6641897500", |a| a.store(Width::B2, at(R13, 0), RSI)); // mov word ptr [r13+0], si
    case!("418b7500", |a| a.load(Width::B4, RSI, at(R13, 0))); // mov esi, dword ptr [r13+0]
    case!("49637500", |a| a.load_signed(Width::B4, RSI, at(R13, 0))); // movsxd rsi, dword ptr [r13+0]
    case!("41897500", |a| a.store(Width::B4, at(R13, 0), RSI)); // mov dword ptr [r13+0], esi
    case!("498b7500", |a| a.load(Width::B8, RSI, at(R13, 0))); // mov rsi, qword ptr [r13+0]
    case!("49897500", |a| a.store(Width::B8, at(R13, 0), RSI)); // mov qword ptr [r13+0], rsi
    case!("450fb67d00", |a| a.load(Width::B1, R15, at(R13, 0))); // movzx r15d, byte ptr [r13+0]
    case!("4d0fbe7d00", |a| a.load_signed(Width::B1, R15, at(R13, 0))); // movsx r15, byte ptr [r13+0]
    case!("45887d00", |a| a.store(Width::B1, at(R13, 0), R15)); // mov byte ptr [r13+0], r15b
    case!("450fb77d00", |a| a.load(Width::B2, R15, at(R13, 0))); // movzx r15d, word ptr [r13+0]
    case!("4d0fbf7d00", |a| a.load_signed(Width::B2, R15, at(R13, 0))); // movsx r15, word ptr [r13+0]
    case!("6645897d00", |a| a.store(Width::B2, at(R13, 0), R15)); // mov word ptr [r13+0], r15w
    case!("458b7d00", |a| a.load(Width::B4, R15, at(R13, 0))); // mov r15d, dword ptr [r13+0]
    case!("4d637d00", |a| a.load_signed(Width::B4, R15, at(R13, 0))); // movsxd r15, dword ptr [r13+0]
    case!("45897d00", |a| a.store(Width::B4, at(R13, 0), R15)); // mov dword ptr [r13+0], r15d
    case!("4d8b7d00", |a| a.load(Width::B8, R15, at(R13, 0))); // mov r15, qword ptr [r13+0]
    case!("4d897d00", |a| a.store(Width::B8, at(R13, 0), R15)); // mov qword ptr [r13+0], r15
    case!("4d8d5d00", |a| a.lea(R11, at(R13, 0))); // lea r11, [r13+0]
    case!("410fb6440a08", |a| a.load(Width::B1, RAX, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // movzx eax, byte ptr [r10+rcx*1+8]
    case!("490fbe440a08", |a| a.load_signed(Width::B1, RAX, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // movsx rax, byte ptr [r10+rcx*1+8]
    case!("4188440a08", |a| a.store(Width::B1, Mem { base: R10, index: Some((RCX, 0)), disp: 8 }, RAX)); // mov byte ptr [r10+rcx*1+8], al
    case!("41c6440a084d", |a| a.store_imm(Width::B1, Mem { base: R10, index: Some((RCX, 0)), disp: 8 }, 77)); // mov byte ptr [r10+rcx*1+8], 77
    case!("410fb7440a08", |a| a.load(Width::B2, RAX, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // movzx eax, word ptr [r10+rcx*1+8]
    case!("490fbf440a08", |a| a.load_signed(Width::B2, RAX, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // movsx rax, word ptr [r10+rcx*1+8]
    case!("664189440a08", |a| a.store(Width::B2, Mem { base: R10, index: Some((RCX, 0)), disp: 8 }, RAX)); // mov word ptr [r10+rcx*1+8], ax
    case!("6641c7440a084d00", |a| a.store_imm(Width::B2, Mem { base: R10, index: Some((RCX, 0)), disp: 8 }, 77)); // mov word ptr [r10+rcx*1+8], 77
    case!("418b440a08", |a| a.load(Width::B4, RAX, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // mov eax, dword ptr [r10+rcx*1+8]
    case!("4963440a08", |a| a.load_signed(Width::B4, RAX, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // movsxd rax, dword ptr [r10+rcx*1+8]
    case!("4189440a08", |a| a.store(Width::B4, Mem { base: R10, index: Some((RCX, 0)), disp: 8 }, RAX)); // mov dword ptr [r10+rcx*1+8], eax
    case!("41c7440a084d000000", |a| a.store_imm(Width::B4, Mem { base: R10, index: Some((RCX, 0)), disp: 8 }, 77)); // mov dword ptr [r10+rcx*1+8], 77
    case!("498b440a08", |a| a.load(Width::B8, RAX, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // mov rax, qword ptr [r10+rcx*1+8]
    case!("4989440a08", |a| a.store(Width::B8, Mem { base: R10, index: Some((RCX, 0)), disp: 8 }, RAX)); // mov qword ptr [r10+rcx*1+8], rax
    case!("49c7440a084d000000", |a| a.store_imm(Width::B8, Mem { base: R10, index: Some((RCX, 0)), disp: 8 }, 77)); // mov qword ptr [r10+rcx*1+8], 77
    case!("410fb6740a08", |a| a.load(Width::B1, RSI, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // movzx esi, byte ptr [r10+rcx*1+8]
    case!("490fbe740a08", |a| a.load_signed(Width::B1, RSI, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // movsx rsi, byte ptr [r10+rcx*1+8]
    case!("4188740a08", |a| a.store(Width::B1, Mem { base: R10, index: Some((RCX, 0)), disp: 8 }, RSI)); // mov byte ptr [r10+rcx*1+8], sil
    case!("410fb7740a08", |a| a.load(Width::B2, RSI, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // movzx esi, word ptr [r10+rcx*1+8]
    case!("490fbf740a08", |a| a.load_signed(Width::B2, RSI, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // movsx rsi, word ptr [r10+rcx*1+8]
    case!("664189740a08", |a| a.store(Width::B2, Mem { base: R10, index: Some((RCX, 0)), disp: 8 }, RSI)); // mov word ptr [r10+rcx*1+8], si
    case!("418b740a08", |a| a.load(Width::B4, RSI, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // mov esi, dword ptr [r10+rcx*1+8]
    case!("4963740a08", |a| a.load_signed(Width::B4, RSI, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // movsxd rsi, dword ptr [r10+rcx*1+8]
    case!("4189740a08", |a| a.store(Width::B4, Mem { base: R10, index: Some((RCX, 0)), disp: 8 }, RSI)); // mov dword ptr [r10+rcx*1+8], esi
    case!("498b740a08", |a| a.load(Width::B8, RSI, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // mov rsi, qword ptr [r10+rcx*1+8]
    case!("4989740a08", |a| a.store(Width::B8, Mem { base: R10, index: Some((RCX, 0)), disp: 8 }, RSI)); // mov qword ptr [r10+rcx*1+8], rsi
    case!("450fb67c0a08", |a| a.load(Width::B1, R15, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // movzx r15d, byte ptr [r10+rcx*1+8]
    case!("4d0fbe7c0a08", |a| a.load_signed(Width::B1, R15, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // movsx r15, byte ptr [r10+rcx*1+8]
    case!("45887c0a08", |a| a.store(Width::B1, Mem { base: R10, index: Some((RCX, 0)), disp: 8 }, R15)); // mov byte ptr [r10+rcx*1+8], r15b
    case!("450fb77c0a08", |a| a.load(Width::B2, R15, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // movzx r15d, word ptr [r10+rcx*1+8]
    case!("4d0fbf7c0a08", |a| a.load_signed(Width::B2, R15, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // movsx r15, word ptr [r10+rcx*1+8]
    case!("6645897c0a08", |a| a.store(Width::B2, Mem { base: R10, index: Some((RCX, 0)), disp: 8 }, R15)); // mov word ptr [r10+rcx*1+8], r15w
    case!("458b7c0a08", |a| a.load(Width::B4, R15, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // mov r15d, dword ptr [r10+rcx*1+8]
    case!("4d637c0a08", |a| a.load_signed(Width::B4, R15, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // movsxd r15, dword ptr [r10+rcx*1+8]
    case!("45897c0a08", |a| a.store(Width::B4, Mem { base: R10, index: Some((RCX, 0)), disp: 8 }, R15)); // mov dword ptr [r10+rcx*1+8], r15d
    case!("4d8b7c0a08", |a| a.load(Width::B8, R15, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // mov r15, qword ptr [r10+rcx*1+8]
    case!("4d897c0a08", |a| a.store(Width::B8, Mem { base: R10, index: Some((RCX, 0)), disp: 8 }, R15)); // mov qword ptr [r10+rcx*1+8], r15
    case!("4d8d5c0a08", |a| a.lea(R11, Mem { base: R10, index: Some((RCX, 0)), disp: 8 })); // lea r11, [r10+rcx*1+8]
    case!("66c1c108", |a| a.swap16(RCX)); // rol cx, 8
    case!("66c1c708", |a| a.swap16(RDI)); // rol di, 8
    case!("6641c1c108", |a| a.swap16(R9)); // rol r9w, 8
    case!("53", |a| a.push(RBX)); // push rbx
    case!("5b", |a| a.pop(RBX)); // pop rbx
    case!("ffe3", |a| a.jump_reg(RBX)); // jmp rbx
    case!("ffd3", |a| a.call_reg(RBX)); // call rbx
    case!("4155", |a| a.push(R13)); // push r13
    case!("415d", |a| a.pop(R13)); // pop r13
    case!("41ffe5", |a| a.jump_reg(R13)); // jmp r13
    case!("41ffd5", |a| a.call_reg(R13)); // call r13
    case!("b8efbeadde", |a| a.constant(RAX, 0xdead_beef)); // mov eax, 0xdeadbeef
    case!("48c7c0fbffffff", |a| a.constant(RAX, -5i64 as u64)); // mov rax, -5
    case!("48b8f0debc9a78563412", |a| a.constant(RAX, 0x1234_5678_9abc_def0)); // movabs rax, 0x123456789abcdef0
    case!("beefbeadde", |a| a.constant(RSI, 0xdead_beef)); // mov esi, 0xdeadbeef
    case!("48c7c6fbffffff", |a| a.constant(RSI, -5i64 as u64)); // mov rsi, -5
    case!("48bef0debc9a78563412", |a| a.constant(RSI, 0x1234_5678_9abc_def0)); // movabs rsi, 0x123456789abcdef0
    case!("41bbefbeadde", |a| a.constant(R11, 0xdead_beef)); // mov r11d, 0xdeadbeef
    case!("49c7c3fbffffff", |a| a.constant(R11, -5i64 as u64)); // mov r11, -5
    case!("49bbf0debc9a78563412", |a| a.constant(R11, 0x1234_5678_9abc_def0)); // movabs r11, 0x123456789abcdef0
    case!("ff542410", |a| a.call_mem(at(RSP, 16))); // call qword ptr [rsp+16]
    case!("41ff942458020000", |a| a.call_mem(at(R12, 600))); // call qword ptr [r12+600]
    case!("c3", |a| a.ret()); // ret
}
