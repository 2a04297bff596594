//! OpenAI's embeddings, for those whose API is another.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is asked for.
#[derive(Deserialize)]
pub(crate) struct Request {
    pub(crate) input: Input,
    #[serde(default)]
    pub(crate) dimensions: Option<u32>,
}

/// What is to be embedded.
#[derive(Debug, PartialEq)]
pub(crate) enum Input {
    Texts(Vec<String>),
    /// Numbers, or lists of them.
    Tokens,
}

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wrong = || serde::de::Error::custom("input is neither a text nor a list of texts or tokens");
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self::Texts(vec![text])),
            Value::Array(items) if items.is_empty() => Err(wrong()),
            Value::Array(items) if items.iter().all(|item| item.is_number() || item.is_array()) => {
                Ok(Self::Tokens)
            }
            Value::Array(items) => {
                let texts = items.into_iter().map(|item| match item {
                    Value::String(text) => Ok(text),
                    _ => Err(wrong()),
                });
                texts.collect::<Result<_, _>>().map(Self::Texts)
            }
            _ => Err(wrong()),
        }
    }
}

#[derive(Serialize)]
struct Embedding {
    object: &'static str,
    index: usize,
    embedding: Value,
}

/// How the numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Float,
    /// The bytes of single-precision numbers, the lowest first: what OpenAI's own clients ask for.
    Base64,
}

impl Encoding {
    fn write(self, numbers: &[f32]) -> Value {
        match self {
            Self::Float => numbers.into(),
            Self::Base64 => {
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                STANDARD.encode(bytes).into()
            }
        }
    }
}

/// An answer.
pub(crate) fn list(
    model: &str,
    embeddings: impl Iterator<Item = Vec<f32>>,
    encoding: Encoding,
    tokens: u64,
) -> impl Serialize {
    #[derive(Serialize)]
    struct List {
        object: &'static str,
        data: Vec<Embedding>,
        model: String,
        usage: Usage,
    }
    #[derive(Serialize)]
    struct Usage {
        prompt_tokens: u64,
        total_tokens: u64,
    }
    let data = embeddings.enumerate().map(|(index, embedding)| Embedding {
        object: "embedding",
        index,
        embedding: encoding.write(&embedding),
    });
    List {
        object: "list",
        data: data.collect(),
        model: model.to_owned(),
        usage: Usage {
            prompt_tokens: tokens,
            total_tokens: tokens,
        },
    }
}
