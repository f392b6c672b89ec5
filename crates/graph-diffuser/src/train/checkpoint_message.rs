//! Checkpoints as messages to other processes.

use std::path::PathBuf;

use crate::distributed::ExchangeError;

use super::{Checkpoint, LoadedCheckpoint};

impl Checkpoint {
    /// Serializes the files for another process.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let names: Vec<(&String, usize)> =
            self.files.iter().map(|(name, bytes)| (name, bytes.len())).collect();
        let header = serde_json::to_vec(&(self.epoch, names)).expect("plain data");
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        bytes.extend(self.files.values().flatten());
        bytes
    }

    /// Deserializes the files that the first process has sent.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, ExchangeError> {
        let decode = || {
            let (length, rest) = bytes.split_first_chunk::<8>()?;
            let (header, mut rest) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
            let (epoch, names): (usize, Vec<(String, usize)>) =
                serde_json::from_slice(header).ok()?;
            let mut checkpoint = Self { epoch, ..Self::default() };
            for (name, length) in names {
                let (file, after) = rest.split_at_checked(length)?;
                checkpoint.files.insert(name, file.to_vec());
                rest = after;
            }
            Some(checkpoint)
        };
        decode().ok_or_else(|| ExchangeError::malformed(0))
    }
}

impl LoadedCheckpoint {
    /// Returns a checkpoint that was received from another process.
    pub(super) fn received(checkpoint: Checkpoint) -> Self {
        Self { checkpoint, path: PathBuf::new(), skipped: vec![] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_survive_a_message_and_truncated_messages_are_errors() {
        let files = [("a".to_owned(), vec![1, 2]), ("b".to_owned(), vec![])];
        let checkpoint = Checkpoint { epoch: 3, files: files.into() };
        let bytes = checkpoint.to_bytes();
        assert_eq!(Checkpoint::from_bytes(&bytes).expect("a complete message"), checkpoint);
        for length in 0..bytes.len() {
            assert!(Checkpoint::from_bytes(&bytes[..length]).is_err());
        }
    }
}
