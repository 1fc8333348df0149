//! [`Lines`]: whole lines of bytes that arrive in pieces, in bounded memory.

/// Most bytes of a line. Longer lines are skipped.
pub const MAX_LINE: usize = 1 << 20;

/// A line without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its number; the first is 1.
    pub number: u64,
    /// Its bytes; `None` if there were more than [`MAX_LINE`].
    pub text: Option<Vec<u8>>,
}

/// Where a reader of lines is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct LinePosition {
    /// Bytes before the next line.
    pub offset: u64,
    /// Lines before it.
    pub lines: u64,
}

/// Cuts bytes into lines.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
    /// Where the next line begins in the buffer, and how far it has been searched for its end.
    start: usize,
    searched: usize,
    /// Bytes of the next line that were dropped because it is too long.
    dropped: u64,
    place: LinePosition,
}

impl Lines {
    /// Continues at this position.
    pub fn from(place: LinePosition) -> Self {
        Self { place, ..Self::default() }
    }

    /// More bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next line that has its end.
    pub fn pull(&mut self) -> Option<Line> {
        let end = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
        match end {
            Some(end) => Some(self.cut(self.searched + end, 1)),
            None => {
                self.searched = self.buffer.len();
                if self.searched - self.start > MAX_LINE {
                    self.dropped += (self.searched - self.start) as u64;
                    self.start = self.searched;
                }
                None
            }
        }
    }

    /// The rest at the end of the input: a last line without a line break.
    pub fn finish(&mut self) -> Option<Line> {
        let is_empty = self.start == self.buffer.len() && self.dropped == 0;
        if is_empty { None } else { Some(self.cut(self.buffer.len(), 0)) }
    }

    /// The end of the last line that was returned.
    pub fn place(&self) -> LinePosition {
        self.place
    }

    fn cut(&mut self, end: usize, ending: usize) -> Line {
        let text = &self.buffer[self.start..end];
        let is_too_long = self.dropped > 0 || text.len() > MAX_LINE;
        self.place.offset += self.dropped + (text.len() + ending) as u64;
        self.place.lines += 1;
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let text = if is_too_long { None } else { Some(text.to_vec()) };
        self.start = end + ending;
        self.searched = self.start;
        self.dropped = 0;
        Line { number: self.place.lines, text }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(lines: &mut Lines, pieces: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        let mut all = Vec::new();
        for piece in pieces {
            lines.push(piece);
            while let Some(line) = lines.pull() {
                assert_eq!(line.number as usize, all.len() + 1);
                all.push(line.text);
            }
        }
        all.extend(lines.finish().map(|line| line.text));
        all
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over_and_the_next_is_not() {
        let mut lines = Lines::default();
        let block = vec![b'x'; 1 << 18];
        for _ in 0..40 {
            lines.push(&block);
            assert_eq!(lines.pull(), None);
            assert!(lines.buffer.len() <= MAX_LINE + 2 * block.len());
        }
        lines.push(b"xx\nshort\n");
        assert_eq!(lines.pull(), Some(Line { number: 1, text: None }));
        assert_eq!(lines.pull(), Some(Line { number: 2, text: Some(b"short".to_vec()) }));
        assert_eq!(lines.place(), LinePosition { offset: (40 << 18) + 9, lines: 2 });
        // Exactly as long as allowed.
        lines.push(&vec![b'y'; MAX_LINE]);
        assert_eq!(lines.pull(), None);
        lines.push(b"\n");
        assert_eq!(lines.pull().unwrap().text.unwrap().len(), MAX_LINE);
        lines.push(&vec![b'y'; MAX_LINE + 1]);
        lines.push(b"\n");
        assert_eq!(lines.pull().unwrap().text, None);
        // Too long, and never ended.
        lines.push(&vec![b'y'; MAX_LINE + 1]);
        assert_eq!(lines.pull(), None);
        assert_eq!(lines.finish(), Some(Line { number: 5, text: None }));
        assert_eq!(lines.finish(), None);
    }

    #[test]
    fn a_reader_can_go_on_where_another_was() {
        let text = b"one\r\ntwo\n\nthree";
        let mut lines = Lines::default();
        lines.push(text);
        assert_eq!(lines.pull().unwrap().text.unwrap(), b"one");
        assert_eq!(lines.place(), LinePosition { offset: 5, lines: 1 });
        let mut rest = Lines::from(lines.place());
        rest.push(&text[5..]);
        let line = rest.pull().unwrap();
        assert_eq!((line.number, line.text.unwrap()), (2, b"two".to_vec()));
        assert_eq!(rest.pull().unwrap().text.unwrap(), b"");
        assert_eq!(rest.pull(), None);
        assert_eq!(rest.finish().unwrap().text.unwrap(), b"three");
        assert_eq!(rest.place(), LinePosition { offset: text.len() as u64, lines: 4 });
    }

    proptest! {
        #[test]
        fn pieces_don_t_matter(text in "[ab\n\r]{0,60}", cuts in prop::collection::vec(0usize..60, 0..6)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect();
            let mut lines = Lines::default();
            let found = texts(&mut lines, &pieces);
            prop_assert_eq!(lines.place().offset, bytes.len() as u64);
            let expected: Vec<Option<Vec<u8>>> = text
                .split_inclusive('\n')
                .map(|line| line.strip_suffix('\n').unwrap_or(line))
                .map(|line| Some(line.strip_suffix('\r').unwrap_or(line).as_bytes().to_vec()))
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}
