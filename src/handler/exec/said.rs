//! What a program writes: passed on to the log, and only its end kept.
//!
//! Read as fast as it comes, so that a program is never held up by us, in memory that is bounded whatever it writes.

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

/// How many bytes of the end are kept: a stack trace's last frames, and the error below them.
pub(crate) const KEPT: usize = 2 * 1024;

/// The longest line that is logged in one piece.
const LINE: u64 = 8 * 1024;

/// The end of what a program has said so far.
#[derive(Debug, Default)]
pub(crate) struct Said {
    end: Vec<u8>,
    cut: bool,
}

impl Said {
    /// Reads to the end. An error ends it too: there is nothing more to be had.
    ///
    /// # Cancel safety
    /// What was read by then is kept, but for a line under way.
    pub(crate) async fn listen(&mut self, stream: &'static str, pipe: Option<impl AsyncRead + Unpin>) {
        let Some(pipe) = pipe else { return };
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while let Ok(1..) = (&mut pipe).take(LINE).read_until(b'\n', &mut line).await {
            tracing::debug!(stream, "{}", String::from_utf8_lossy(&line).trim_end());
            self.push(&line);
            line.clear();
        }
    }

    fn push(&mut self, line: &[u8]) {
        self.end.extend_from_slice(line);
        if let Some(surplus) = self.end.len().checked_sub(KEPT).filter(|surplus| *surplus > 0) {
            self.end.drain(..surplus);
            self.cut = true;
        }
    }

    /// The failure's text: how it ended, its last line, which most often says why, and then all that is kept.
    pub(super) fn text_after(&self, ended: &str) -> String {
        let said = String::from_utf8_lossy(&self.end);
        let said = said.trim();
        match said.rsplit_once('\n') {
            None if said.is_empty() => ended.to_owned(),
            None => format!("{ended}: {}{said}", if self.cut { "…" } else { "" }),
            Some((_, last)) => format!("{ended}: {last}\n{}{said}", if self.cut { "…" } else { "" }),
        }
    }
}
