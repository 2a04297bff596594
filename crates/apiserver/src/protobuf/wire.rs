//! The wire format of protobuf: a message is a row of fields, each a number and a value.
//!
//! By hand because the libraries that read it do so for types known when they are compiled, and the messages here
//! are a table. <https://protobuf.dev/programming-guides/encoding/>

/// Reads the fields of one message, in the order they stand in.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

/// The value of a field, as far as the wire tells what it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Item<'a> {
    /// Integers and booleans.
    Varint(u64),
    /// `double`, and integers of fixed length.
    Fixed64(u64),
    /// Texts, bytes, messages and packed lists.
    Bytes(&'a [u8]),
    /// `float`, and integers of fixed length.
    Fixed32(u32),
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    #[error("the bytes end in the middle of a value")]
    Truncated,
    #[error("a number has more than 64 bits")]
    Overflow,
    #[error("0 is not the number of a field")]
    NoField,
    #[error("wire type {0} is not known")]
    WireType(u64),
}

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The next field's number and value; `None` at the end of the message.
    pub(super) fn next_field(&mut self) -> Result<Option<(u32, Item<'a>)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| WireError::Overflow)?;
        if number == 0 {
            return Err(WireError::NoField);
        }
        let item = match tag & 7 {
            0 => Item::Varint(self.varint()?),
            1 => Item::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| WireError::Truncated)?;
                Item::Bytes(self.take(length)?)
            }
            5 => Item::Fixed32(u32::from_le_bytes(self.array()?)),
            // 3 and 4 are groups, which proto3 and Kubernetes do not have.
            other => return Err(WireError::WireType(other)),
        };
        Ok(Some((number, item)))
    }

    /// The next number of a packed list; `None` at its end.
    pub(super) fn next_packed(&mut self) -> Result<Option<u64>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.varint().map(Some)
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(WireError::Overflow);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(WireError::Overflow)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (first, rest) = self.rest.split_at_checked(length).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(message: &[u8]) -> Result<Vec<(u32, Item<'_>)>, WireError> {
        let mut reader = Reader::new(message);
        std::iter::from_fn(|| reader.next_field().transpose()).collect()
    }

    #[test]
    fn fields_are_read() {
        let message = [
            0x08, 0x96, 0x01, // 1: 150
            0x12, 0x02, b'h', b'i', // 2: "hi"
            0x19, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, // 3: 1.5
            0x25, 1, 0, 0, 0, // 4: 1
            0x82, 0x01, 0x00, // 16: empty
        ];
        let expected = [
            (1, Item::Varint(150)),
            (2, Item::Bytes(b"hi")),
            (3, Item::Fixed64(1.5_f64.to_bits())),
            (4, Item::Fixed32(1)),
            (16, Item::Bytes(b"")),
        ];
        assert_eq!(fields(&message).unwrap(), expected);
        let least = [&[0x08][..], &[0xff; 9], &[0x01]].concat();
        assert_eq!(fields(&least).unwrap(), [(1, Item::Varint(u64::MAX))]);
    }

    #[test]
    fn broken_messages_are_refused() {
        for (message, error) in [
            (&[0x08][..], WireError::Truncated),
            (&[0x80], WireError::Truncated),
            (&[0x12, 0x05, b'a'], WireError::Truncated),
            (
                &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                WireError::Truncated,
            ),
            (&[0x19, 0, 0], WireError::Truncated),
            (&[0x25, 0, 0], WireError::Truncated),
            (&[0x00, 0x01], WireError::NoField),
            (&[0x0b], WireError::WireType(3)),
            (&[0x0f], WireError::WireType(7)),
            (&[0xff; 11], WireError::Overflow),
            (
                &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
                WireError::Overflow,
            ),
        ] {
            assert_eq!(fields(message).unwrap_err(), error, "{message:x?}");
        }
    }
}
