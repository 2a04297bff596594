//! Embeddings by batchEmbedContents.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    embeddings::{self, Input},
    error::Failure,
    provider::{Answer, Origin, Remote, Tokens},
    request::Request,
};

pub(super) fn body(remote: &Remote, request: &Request<'_>, model: &str) -> Result<Value, Failure> {
    let asked: embeddings::Request = request.typed(&remote.defaults, "embeddings request")?;
    let Input::Texts(texts) = asked.input else {
        let message = "the provider gemini embeds texts; input is a list of tokens";
        return Err(Failure::parameter("input", message));
    };
    let requests = texts.into_iter().map(|text| {
        let mut one = json!({"model": format!("models/{model}"), "content": {"parts": [{"text": text}]}});
        if let Some(dimensions) = asked.dimensions {
            one["outputDimensionality"] = dimensions.into();
        }
        one
    });
    Ok(json!({"requests": requests.collect::<Vec<_>>()}))
}

pub(in super::super) fn answer(
    request: &Request<'_>,
    origin: &Origin,
    body: &[u8],
) -> Result<Answer, String> {
    #[derive(Deserialize)]
    struct Said {
        embeddings: Vec<Values>,
    }
    #[derive(Deserialize)]
    struct Values {
        values: Vec<f32>,
    }
    let said: Said = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let lists = said.embeddings.into_iter().map(|embedding| embedding.values);
    // The API does not count tokens here.
    let response = embeddings::list(&origin.model, lists, request.encoding(), 0);
    let body = serde_json::to_vec(&response).map_err(|error| error.to_string())?;
    Ok(Answer {
        body: body.into(),
        usage: Some(Tokens::default()),
    })
}
