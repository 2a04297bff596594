//! Randomness: identifiers, name suffixes and jitter.

use std::{
    fmt::Debug,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// The alphabet of Kubernetes' generated names: no vowels, nothing that reads as a digit
/// (`k8s.io/apimachinery/pkg/util/rand`).
const NAME_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A source of random bytes.
pub trait Random: Debug + Send + Sync {
    /// Fills `buffer`.
    fn fill(&self, buffer: &mut [u8]);

    /// A random 64-bit number.
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A random (version 4) UUID, as Kubernetes writes uids.
    fn uuid(&self) -> String {
        let mut b = [0; 16];
        self.fill(&mut b);
        b[6] = (b[6] & 0x0f) | 0x40;
        b[8] = (b[8] & 0x3f) | 0x80;
        let hex = self::hex(&b);
        format!(
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        )
    }

    /// `len` characters of the alphabet that Kubernetes uses for generated names.
    fn suffix(&self, len: usize) -> String {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
            .iter()
            .map(|b| char::from(NAME_ALPHABET[usize::from(*b) % NAME_ALPHABET.len()]))
            .collect()
    }

    /// `len` random bytes in lower-case hexadecimal.
    fn hex(&self, len: usize) -> String {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        hex(&bytes)
    }

    /// A duration between half of `base` and all of it, so that many waiters do not wake together.
    fn jitter(&self, base: Duration) -> Duration {
        let share = (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        base.mul_f64(0.5 + share / 2.0)
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]])
        .map(char::from)
        .collect()
}

/// The operating system's randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, buffer: &mut [u8]) {
        // The system call only fails where there is no entropy source at all; a predictable token is worse
        // than no process.
        if let Err(error) = getrandom::fill(buffer) {
            eprintln!("kaos: the operating system gives no randomness: {error}");
            std::process::abort();
        }
    }
}

/// Reproducible randomness from a seed.
#[derive(Debug)]
pub struct SeededRandom {
    generator: Mutex<ChaCha8Rng>,
}

impl SeededRandom {
    /// The same seed gives the same bytes.
    pub fn new(seed: u64) -> Self {
        Self {
            generator: Mutex::new(ChaCha8Rng::seed_from_u64(seed)),
        }
    }
}

impl Random for SeededRandom {
    fn fill(&self, buffer: &mut [u8]) {
        self.generator
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .fill_bytes(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays() {
        let (a, b) = (SeededRandom::new(7), SeededRandom::new(7));
        assert_eq!(a.uuid(), b.uuid());
        assert_eq!(a.suffix(5), b.suffix(5));
        assert_ne!(a.uuid(), SeededRandom::new(8).uuid());
    }

    #[test]
    fn uuids_are_version_4_and_jitter_stays_in_its_half() {
        let random = SeededRandom::new(1);
        for _ in 0..1_000 {
            let uuid = random.uuid();
            assert_eq!((uuid.len(), &uuid[14..15]), (36, "4"), "{uuid}");
            assert!("89ab".contains(&uuid[19..20]), "{uuid}");
            let jitter = random.jitter(Duration::from_secs(2));
            assert!(
                (Duration::from_secs(1)..=Duration::from_secs(2)).contains(&jitter),
                "{jitter:?}"
            );
        }
    }
}
