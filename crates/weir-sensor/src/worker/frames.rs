//! Records of frames: parts of messages as sent.

use super::PipelineState;
use super::log::{flow_head, names};
use crate::app::Conversation;
use crate::config::Record;
use crate::flow::Info;
use crate::output::eve::counted;
use crate::output::eve::{self, Ether, FrameFacts, Marks};

impl PipelineState {
    /// Records of the frames that came since the last time.
    pub(super) fn log_frames(
        &mut self,
        info: &Info,
        talk: &mut Conversation,
        (marks, first, parent): (Option<&Marks<'_>>, Option<Ether>, u64),
    ) {
        let app = names(Some(&*talk));
        let all = &mut talk.transactions;
        let mut loose = all.loose.take();
        let loose = loose.as_deref_mut().map(|t| (t, false));
        let live = all.live.iter_mut().map(|t| (t, true));
        for (t, belongs) in live.chain(loose) {
            let number = belongs.then(|| counted(t));
            for (of, bytes) in t.frames().filter(|(f, _)| !f.logged) {
                if of.grows() && !*of.direction.of(&t.complete) {
                    continue;
                }
                let start = self.bytes.len();
                let mut head = flow_head(info, of.sender, self.time, self.counted());
                head.origin = Some(self.origin);
                head.marks = marks;
                head.ether = self.ether(of.sender, first);
                head.parent = parent;
                let what = FrameFacts {
                    of: *of,
                    bytes,
                    complete: of.length.is_none(),
                    transaction: number,
                };
                eve::frame(&mut self.bytes, &head, &app, &what, &self.logs.options);
                let end = self.bytes.len();
                self.line(info.number, Record::Frame, None, start..end, 0..0);
            }
            t.frames_are_logged();
        }
    }
}
