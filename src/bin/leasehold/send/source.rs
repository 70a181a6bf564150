//! Where bodies come from: arguments, a file, or standard input, a line each or as a whole.
//!
//! Reads no further than it is asked to, and holds one body at a time, whatever the length of lines. Must never split or
//! mend a body: what cannot be sent as it is, is told.

use std::{collections::VecDeque, io, path::Path};

use leasehold::queue::LARGEST_MESSAGE;
use tokio::{
    fs::File,
    io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader, stdin},
};

/// A body, or why there is none, with its number: of the line or of the argument, from one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Numbered {
    pub(super) number: u64,
    pub(super) body: Result<String, String>,
}

pub(super) enum Source {
    Arguments { bodies: VecDeque<String>, taken: u64 },
    Lines { reader: Reader, line: u64 },
    Whole { reader: Option<Reader> },
}

type Reader = Box<dyn AsyncBufRead + Unpin>;

/// How much is read at once.
const BUFFER: usize = 256 * 1024;

impl Source {
    pub(super) fn arguments(bodies: Vec<String>) -> Self {
        Self::Arguments { bodies: bodies.into(), taken: 0 }
    }

    /// A line each, or all in one.
    pub(super) fn standard_input(whole: bool) -> Self {
        Self::read(Box::new(BufReader::with_capacity(BUFFER, stdin())), whole)
    }

    /// As [`standard_input`](Self::standard_input).
    pub(super) async fn file(path: &Path, whole: bool) -> io::Result<Self> {
        Ok(Self::read(Box::new(BufReader::with_capacity(BUFFER, File::open(path).await?)), whole))
    }

    fn read(reader: Reader, whole: bool) -> Self {
        if whole { Self::Whole { reader: Some(reader) } } else { Self::Lines { reader, line: 0 } }
    }

    /// What a number counts, for people.
    pub(super) fn unit(&self) -> &'static str {
        match self {
            Self::Arguments { .. } => "body",
            Self::Lines { .. } => "line",
            Self::Whole { .. } => "input",
        }
    }

    /// The next body. Empty lines are none.
    ///
    /// # Cancel safety
    /// Not cancel safe: what was read of a line is lost.
    pub(super) async fn next(&mut self) -> io::Result<Option<Numbered>> {
        match self {
            Self::Arguments { bodies, taken } => {
                *taken += 1;
                Ok(bodies.pop_front().map(|body| Numbered { number: *taken, body: Ok(body) }))
            }
            Self::Lines { reader, line } => loop {
                let Some(read) = read_line(reader).await? else { return Ok(None) };
                *line += 1;
                if read != Ok(String::new()) {
                    return Ok(Some(Numbered { number: *line, body: read }));
                }
            },
            Self::Whole { reader } => {
                let Some(reader) = reader.take() else { return Ok(None) };
                let mut body = Vec::new();
                reader.take(MOST).read_to_end(&mut body).await?;
                let body = if body.len() > LARGEST_MESSAGE { Err(too_large()) } else { text(body) };
                Ok(Some(Numbered { number: 1, body }))
            }
        }
    }
}

/// The largest body, with the end of its line and a byte that says that there is more.
const MOST: u64 = LARGEST_MESSAGE as u64 + 3;

/// One line without its end; `None` when there is none. Of one that is too long for a message nothing is kept.
async fn read_line(reader: &mut Reader) -> io::Result<Option<Result<String, String>>> {
    let mut line = Vec::new();
    if reader.take(MOST).read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    let whole = line.ends_with(b"\n");
    if whole {
        line.pop();
        line.pop_if(|last| *last == b'\r');
    }
    if line.len() <= LARGEST_MESSAGE {
        return Ok(Some(text(line)));
    }
    drop(line);
    if !whole {
        skip_line(reader).await?;
    }
    Ok(Some(Err(too_large())))
}

async fn skip_line(reader: &mut Reader) -> io::Result<()> {
    loop {
        let buffer = reader.fill_buf().await?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let (length, is_end) = (end.map_or(buffer.len(), |end| end + 1), end.is_some() || buffer.is_empty());
        reader.consume(length);
        if is_end {
            return Ok(());
        }
    }
}

fn text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8, and SQS takes text".to_owned())
}

fn too_large() -> String {
    format!("it is larger than a message of SQS can be, {LARGEST_MESSAGE} bytes; send a reference to it instead")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(input: Vec<u8>, whole: bool) -> Vec<(u64, Result<usize, String>)> {
        // A small buffer, so that lines are longer than it.
        let mut source = Source::read(Box::new(BufReader::with_capacity(7, io::Cursor::new(input))), whole);
        let mut found = Vec::new();
        while let Some(Numbered { number, body }) = source.next().await.expect("reads") {
            found.push((number, body.map(|body| body.len())));
        }
        found
    }

    #[tokio::test]
    async fn lines_are_bodies_with_their_numbers_and_empty_ones_none() {
        assert_eq!(all(b"a\r\n\nbcd\nlast".to_vec(), false).await, [(1, Ok(1)), (3, Ok(3)), (4, Ok(4))]);
        assert_eq!(all(Vec::new(), false).await, []);
    }

    #[tokio::test]
    async fn a_line_that_no_message_can_hold_is_told_and_the_next_one_read() {
        for (length, ending, fits) in
            [(LARGEST_MESSAGE, "\r\n", true), (LARGEST_MESSAGE + 1, "\n", false), (3 * LARGEST_MESSAGE, "\n", false)]
        {
            let input = [vec![b'x'; length], ending.into(), b"next".to_vec()].concat();
            let found = all(input, false).await;
            assert_eq!((found[0].1.is_ok(), &found[1]), (fits, &(2, Ok(4))), "{length}");
        }
        let found = all(b"good\n\xff\xfe\ngood".to_vec(), false).await;
        assert!(found[1].1.as_ref().is_err_and(|why| why.contains("UTF-8")) && found[2] == (3, Ok(4)), "{found:?}");
    }

    #[tokio::test]
    async fn a_whole_input_is_one_body_lines_and_all() {
        assert_eq!(all(b"{\n}\n".to_vec(), true).await, [(1, Ok(4))]);
        let found = all(vec![b'x'; LARGEST_MESSAGE + 1], true).await;
        assert!(matches!(&found[..], [(1, Err(why))] if why.contains("larger")), "{found:?}");
    }
}
