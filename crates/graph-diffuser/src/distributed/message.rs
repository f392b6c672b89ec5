//! Messages of collective operations: header, values of a reduction, and lists of messages.

use std::fmt::{self, Display, Formatter};

use graph_diffuser_kernels::Reduction;

/// Collective operation of one process, which is compared with that of its partners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    /// Index among the collective operations of a process.
    pub(super) index: u64,
}

/// Kind of a collective operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Reduce,
    Sum,
    Gather,
    AllGather,
}

/// Values that processes combine.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Contribution {
    /// Description of the operation.
    pub(super) site: String,
    pub(super) reduction: Reduction,
    pub(super) values: Vec<f64>,
}

impl Operation {
    const HEADER_BYTES: usize = 9;

    /// Returns the first bytes of each message of the operation.
    pub(super) fn header(self) -> [u8; Self::HEADER_BYTES] {
        let mut bytes = [self.kind as u8; Self::HEADER_BYTES];
        bytes[1..].copy_from_slice(&self.index.to_le_bytes());
        bytes
    }

    /// Decodes the header of a message; `None` if it is malformed.
    pub(super) fn from_header(bytes: &[u8; Self::HEADER_BYTES]) -> Option<Self> {
        let [kind, index @ ..] = *bytes;
        let kind = [Kind::Reduce, Kind::Sum, Kind::Gather, Kind::AllGather]
            .into_iter()
            .find(|&known| known as u8 == kind)?;
        Some(Self { kind, index: u64::from_le_bytes(index) })
    }
}

impl Display for Operation {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Reduce => "a reduction",
            Kind::Sum => "the sum of gradients",
            Kind::Gather => "the collection of messages on rank 0",
            Kind::AllGather => "the collection of messages",
        };
        write!(formatter, "{kind} (collective operation {})", self.index)
    }
}

impl Display for Contribution {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} with {} values", self.site, self.values.len())
    }
}

impl Contribution {
    /// Encodes the contribution as a message.
    pub(super) fn encode(&self) -> Vec<u8> {
        let channels = match self.reduction {
            Reduction::Sum => 0,
            Reduction::Variance => u64::MAX,
            Reduction::Covariance { channels } => channels as u64,
        };
        let mut bytes = Vec::with_capacity(16 + self.site.len() + 8 * self.values.len());
        bytes.extend(channels.to_le_bytes());
        bytes.extend((self.site.len() as u64).to_le_bytes());
        bytes.extend(self.site.as_bytes());
        bytes.extend(self.values.iter().flat_map(|value| value.to_le_bytes()));
        bytes
    }

    /// Decodes a message of [`Contribution::encode`]; `None` if it is malformed.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (channels, rest) = bytes.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let (site, values) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
        let value = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        Some(Self {
            site: String::from_utf8(site.to_vec()).ok()?,
            reduction: match u64::from_le_bytes(*channels) {
                0 => Reduction::Sum,
                u64::MAX => Reduction::Variance,
                channels => Reduction::Covariance { channels: channels as usize },
            },
            values: values.chunks_exact(8).map(value).collect(),
        })
    }
}

/// Encodes several messages as one.
pub(super) fn join_messages(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        bytes.extend((message.len() as u64).to_le_bytes());
        bytes.extend(message);
    }
    bytes
}

/// Decodes `count` messages of [`join_messages`]; `None` if they are malformed.
pub(super) fn split_messages(mut bytes: &[u8], count: usize) -> Option<Vec<Vec<u8>>> {
    let mut messages = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, rest) = bytes.split_first_chunk::<8>()?;
        let (message, rest) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
        messages.push(message.to_vec());
        bytes = rest;
    }
    bytes.is_empty().then_some(messages)
}
