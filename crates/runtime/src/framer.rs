//! Splitting a stream of bytes into frames: lines, as MCP's stdio transport has them.

/// Collects bytes until a line is whole.
#[derive(Debug)]
pub(crate) struct Framer {
    /// An unfinished line.
    partial: Vec<u8>,
    /// The rest of a line that was too long is skipped.
    skipping: bool,
    max: usize,
}

/// What the framer found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Framed<'a> {
    /// A line without its end (`\n` or `\r\n`); never blank.
    Frame(&'a [u8]),
    /// A line longer than the limit. Said once, when the limit is passed.
    TooLong,
}

impl Framer {
    pub(crate) fn new(max: usize) -> Self {
        Self { partial: Vec::new(), skipping: false, max }
    }

    /// Feeds bytes as they were read; `found` is called for each whole line, in order.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut found: impl FnMut(Framed<'_>)) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if self.partial.len() + line.len() > self.max {
                self.partial = Vec::new();
                found(Framed::TooLong);
            } else if self.partial.is_empty() {
                whole(line, &mut found);
            } else {
                self.partial.extend_from_slice(line);
                whole(&self.partial, &mut found);
                self.recycle();
            }
        }
        if self.skipping {
            return;
        }
        if self.partial.len() + bytes.len() > self.max {
            self.partial = Vec::new();
            self.skipping = true;
            found(Framed::TooLong);
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }

    /// Keeps the buffer for the next line unless a huge one made it huge.
    fn recycle(&mut self) {
        const KEEP: usize = 1 << 20;
        self.partial.clear();
        self.partial.shrink_to(KEEP);
    }
}

fn whole(line: &[u8], found: &mut impl FnMut(Framed<'_>)) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if !line.trim_ascii().is_empty() {
        found(Framed::Frame(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(max: usize, chunks: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        let mut framer = Framer::new(max);
        let mut all = Vec::new();
        for chunk in chunks {
            framer.feed(chunk, |framed| {
                all.push(match framed {
                    Framed::Frame(frame) => Some(frame.to_vec()),
                    Framed::TooLong => None,
                });
            });
        }
        all
    }

    #[test]
    fn i4_frames_are_whole_however_the_bytes_come() {
        let bytes = b"{\"a\":1}\n\r\n  \n{\"b\":2}\r\n{\"c\":";
        let expected = vec![Some(b"{\"a\":1}".to_vec()), Some(b"{\"b\":2}".to_vec())];
        assert_eq!(frames(100, &[bytes]), expected);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(frames(100, &single), expected);
    }

    #[test]
    fn i15_a_line_that_is_too_long_costs_only_itself() {
        let expected = vec![None, Some(b"ok".to_vec())];
        assert_eq!(frames(4, &[b"123456789\nok\n"]), expected);
        assert_eq!(frames(4, &[b"12345", b"6789", b"\nok\n"]), expected);
        assert_eq!(frames(4, &[b"1234\n"]), vec![Some(b"1234".to_vec())]);
    }
}
