//! Mutations of bytes, by a seed.

/// Splitmix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64, input: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ input.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// A range of at most `longest` bytes.
    fn range(&mut self, data: &[u8], longest: usize) -> std::ops::Range<usize> {
        let start = self.below(data.len() + 1);
        start..data.len().min(start + self.below(longest) + 1)
    }
}

/// Longer inputs are cut: what grows with the length is found with less.
const MAX_BYTES: usize = 16 * 1024;

const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "4294967296",
    "-9223372036854775808",
    "18446744073709551616",
    "1e308",
    "0.1",
    "1e-7",
    "99999999999999999999999999999999999999",
];

/// One input: a seed of the corpus, changed in some places.
pub(crate) fn mutated(corpus: &[Vec<u8>], tokens: &[&str], random: &mut Random) -> Vec<u8> {
    let mut data = random.pick(corpus).clone();
    // Few changes leave an input that goes deep.
    let changes = 1 + random.below(4) * random.below(4);
    for _ in 0..changes {
        change(&mut data, corpus, tokens, random);
        data.truncate(MAX_BYTES);
    }
    data
}

fn change(data: &mut Vec<u8>, corpus: &[Vec<u8>], tokens: &[&str], random: &mut Random) {
    let at = random.below(data.len() + 1);
    match random.below(10) {
        // A bit is flipped.
        0 => {
            if let Some(byte) = data.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            if let Some(byte) = data.get_mut(at) {
                *byte = *random.pick(b"\0\n\r\t \"'\\/{}[](),.:;=%&#@<>*-+0aA\x7f\x80\xff");
            }
        }
        // A part goes.
        2 => drop(data.drain(random.range(data, 16))),
        3 => data.truncate(at),
        // A part is there twice, or many times.
        4 => {
            let part = data[random.range(data, 64)].to_vec();
            let times = [1, 1, 2, 8, 300][random.below(5)];
            insert(data, at, &part.repeat(times));
        }
        // A part of another one.
        5 => {
            let other = random.pick(corpus);
            let part = other[random.range(other, 256)].to_vec();
            insert(data, at, &part);
        }
        // Its beginning, and another one's end.
        6 => {
            let other = random.pick(corpus);
            data.truncate(at);
            data.extend_from_slice(&other[random.below(other.len() + 1)..]);
        }
        7 => number(data, at, random),
        _ => insert(data, at, random.pick(tokens).as_bytes()),
    }
}

fn insert(data: &mut Vec<u8>, at: usize, part: &[u8]) {
    data.splice(at..at, part.iter().copied());
}

/// The next number becomes another one.
fn number(data: &mut Vec<u8>, from: usize, random: &mut Random) {
    let is_digit = |b: &u8| b.is_ascii_digit();
    let Some(start) = data[from..].iter().position(is_digit) else {
        return;
    };
    let start = from + start;
    let length = data[start..].iter().take_while(|b| is_digit(b)).count();
    let other = random.pick(&NUMBERS).bytes();
    data.splice(start..start + length, other);
}
