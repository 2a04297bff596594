//! A request's body: read once, for the few fields that matter here, and otherwise kept as it was written.

use std::{borrow::Cow, fmt, marker::PhantomData};

use axum::http::StatusCode;
use kaos_openai::{ChatRequest, Extra, StreamOptions};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{completions, embeddings::Encoding, error::Failure};

/// With these LiteLLM lets a request choose its upstream and the credentials. Here only the file does.
const RESERVED: [&str; 13] = [
    "api_base",
    "api_key",
    "api_version",
    "base_url",
    "custom_llm_provider",
    "default_headers",
    "extra_headers",
    "fallbacks",
    "headers",
    "litellm_params",
    "model_list",
    "organization",
    "user_config",
];

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Chat,
    Completions,
    Embeddings,
}

impl Operation {
    /// The path below the base of a server that speaks OpenAI's API.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/chat/completions",
            Self::Completions => "/completions",
            Self::Embeddings => "/embeddings",
        }
    }

    /// What the identifiers of answers begin with.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl",
            Self::Completions => "cmpl",
            Self::Embeddings => "embd",
        }
    }

    /// The name of OpenTelemetry's conventions for generative AI.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completions => "text_completion",
            Self::Embeddings => "embeddings",
        }
    }

    /// For messages.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Chat => "chat completions",
            Self::Completions => "text completions",
            Self::Embeddings => "embeddings",
        }
    }

    /// What an answer to it is called in messages.
    pub(crate) fn answer(self) -> &'static str {
        match self {
            Self::Chat => "chat completion",
            Self::Completions => "text completion",
            Self::Embeddings => "list of embeddings",
        }
    }
}

/// The fields of a JSON object, each once, with their values as they were written.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Object<'a> {
            type Value = Fields<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Fields<'a>, A::Error> {
                let mut fields: Vec<(Cow<'a, str>, &'a RawValue)> = Vec::with_capacity(16);
                while let Some((Name(name), value)) = entries.next_entry::<Name<'a>, &'a RawValue>()? {
                    // The last of several counts, as with most parsers. What is checked here is what is sent.
                    match fields.iter_mut().find(|(known, _)| *known == name) {
                        Some(field) => field.1 = value,
                        None => fields.push((name, value)),
                    }
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object(PhantomData))
    }
}

/// A request.
pub(crate) struct Request<'a> {
    pub(crate) operation: Operation,
    /// The name of the model as the request has it.
    pub(crate) model: String,
    /// Whether a stream is asked for.
    pub(crate) stream: bool,
    fields: Vec<(Cow<'a, str>, Cow<'a, RawValue>)>,
}

impl<'a> Request<'a> {
    /// Reads a body.
    ///
    /// # Errors
    /// What is wrong with it, as the answer to give.
    pub(crate) fn read(operation: Operation, body: &'a [u8]) -> Result<Self, Failure> {
        let Fields(fields) = serde_json::from_slice(body).map_err(|error| {
            let message = if error.is_data() {
                "the body must be a JSON object".to_owned()
            } else {
                format!("the body is not valid JSON: {error}")
            };
            Failure::invalid(StatusCode::BAD_REQUEST, message)
        })?;
        let mut request = Self {
            operation,
            model: String::new(),
            stream: false,
            fields: fields
                .into_iter()
                .map(|(name, value)| (name, Cow::Borrowed(value)))
                .collect(),
        };
        request.model = request
            .parsed::<String>("model")
            .filter(|model| !model.is_empty())
            .ok_or_else(|| Failure::parameter("model", "model is missing; name one of GET /v1/models"))?;
        match operation {
            Operation::Chat if !request.has_items("messages") => {
                let message = "messages must be a list with at least one message";
                return Err(Failure::parameter("messages", message));
            }
            Operation::Completions if request.get("prompt").is_none() => {
                return Err(Failure::parameter(
                    "prompt",
                    "prompt is missing; give the text to go on from",
                ));
            }
            Operation::Embeddings if request.get("input").is_none() => {
                return Err(Failure::parameter(
                    "input",
                    "input is missing; give a text or a list of texts",
                ));
            }
            Operation::Chat | Operation::Completions | Operation::Embeddings => {}
        }
        request.stream = match request.get("stream") {
            Some(_) if operation == Operation::Embeddings => false,
            Some(_) => request
                .parsed("stream")
                .ok_or_else(|| Failure::parameter("stream", "stream must be true or false"))?,
            None => false,
        };
        if let Some(name) = RESERVED.iter().find(|name| request.has(name)) {
            let message =
                format!("{name} cannot be set by a request; it belongs in the proxy's configuration");
            return Err(Failure::parameter(name, message));
        }
        Ok(request)
    }

    fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(known, _)| known == name)
    }

    /// The value of a field, unless it is null.
    fn get(&self, name: &str) -> Option<&RawValue> {
        let (_, value) = self.fields.iter().find(|(known, _)| known == name)?;
        (value.get() != "null").then_some(value)
    }

    fn parsed<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// Whether a field is a list that is not empty; its items are not looked at.
    fn has_items(&self, name: &str) -> bool {
        self.get(name)
            .and_then(|value| value.get().strip_prefix('['))
            .is_some_and(|rest| !rest.trim_start().starts_with(']'))
    }

    /// How embeddings are to be written.
    pub(crate) fn encoding(&self) -> Encoding {
        match self.parsed::<String>("encoding_format").as_deref() {
            Some("base64") => Encoding::Base64,
            _ => Encoding::Float,
        }
    }

    /// Whether a stream ends with a chunk that carries the usage.
    pub(crate) fn include_usage(&self) -> bool {
        let options: Option<StreamOptions> = self.parsed("stream_options");
        options.is_some_and(|options| options.include_usage)
    }

    /// The same for a stream that ends with a chunk that carries the usage, whatever the caller wants to see of it.
    pub(crate) fn telling_usage(&self) -> Request<'a> {
        const OPTIONS: &str = "stream_options";
        let mut options: Extra = self.parsed(OPTIONS).unwrap_or_default();
        options.insert("include_usage".to_owned(), true.into());
        let mut fields = self.fields.clone();
        fields.retain(|(name, _)| name != OPTIONS);
        if let Ok(options) = serde_json::value::to_raw_value(&options) {
            fields.push((OPTIONS.into(), Cow::Owned(options)));
        }
        Request {
            operation: self.operation,
            model: self.model.clone(),
            stream: self.stream,
            fields,
        }
    }

    /// The body for an upstream that speaks OpenAI's API: as it came, with the upstream's `model`, or none where
    /// its address names it, and with those of `defaults` that it does not say itself.
    pub(crate) fn body(&self, model: Option<&str>, defaults: &[(String, Box<RawValue>)]) -> Vec<u8> {
        let size: usize = self
            .fields
            .iter()
            .map(|(name, value)| name.len() + value.get().len() + 4)
            .sum();
        let mut body = Vec::with_capacity(size + 64);
        let model = model.map(text);
        let fields = self.fields.iter().filter_map(|(name, value)| match &**name {
            "model" => Some(("model", model.as_deref()?)),
            name => Some((name, value.get())),
        });
        let missing = defaults.iter().filter(|(name, _)| !self.has(name));
        let missing = missing.map(|(name, value)| (name.as_str(), value.get()));
        for (name, value) in fields.chain(missing) {
            body.push(if body.is_empty() { b'{' } else { b',' });
            body.extend_from_slice(text(name).as_bytes());
            body.push(b':');
            body.extend_from_slice(value.as_bytes());
        }
        if body.is_empty() {
            body.push(b'{');
        }
        body.push(b'}');
        body
    }

    /// The request as a chat completion's, for upstreams that speak another API.
    ///
    /// # Errors
    /// What is wrong with it, as the answer to give.
    pub(crate) fn chat(&self, defaults: &[(String, Box<RawValue>)]) -> Result<ChatRequest, Failure> {
        match self.operation {
            Operation::Completions => self
                .typed(defaults, "text completion request")
                .and_then(completions::chat),
            Operation::Chat | Operation::Embeddings => self.typed(defaults, "chat completion request"),
        }
    }

    /// The request as `T`, which messages call `what`.
    pub(crate) fn typed<T: DeserializeOwned>(
        &self,
        defaults: &[(String, Box<RawValue>)],
        what: &str,
    ) -> Result<T, Failure> {
        serde_json::from_slice(&self.body(Some(&self.model), defaults)).map_err(|error| {
            let problem = error.to_string();
            let problem = problem.split(" at line ").next().unwrap_or_default();
            Failure::invalid(
                StatusCode::BAD_REQUEST,
                format!("the body is no {what}: {problem}"),
            )
        })
    }
}

/// A text as JSON.
fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn raw(value: &str) -> Box<RawValue> {
        RawValue::from_string(value.to_owned()).unwrap()
    }

    #[test]
    fn what_is_not_looked_at_stays_as_it_was_written() {
        let body = br#"{ "messages": [ {"content":"\u00e9"} ],"temperature":1.50,"big":123456789012345678901234567890,
            "model":"a","x\"y":null}"#;
        let request = Request::read(Operation::Chat, body).unwrap();
        let defaults = [
            ("temperature".to_owned(), raw("0")),
            ("seed".to_owned(), raw("7")),
        ];
        assert_eq!(
            String::from_utf8(request.body(Some("in\"ner"), &defaults)).unwrap(),
            "{\"messages\":[ {\"content\":\"\\u00e9\"} ],\"temperature\":1.50,\
             \"big\":123456789012345678901234567890,\"model\":\"in\\\"ner\",\"x\\\"y\":null,\"seed\":7}"
        );
        assert!(
            !String::from_utf8(request.body(None, &[]))
                .unwrap()
                .contains("model")
        );
    }

    #[test]
    fn the_last_of_two_fields_counts_and_nothing_is_sent_twice() {
        let body = br#"{"model":"a","messages":[1],"model":"b","stream":false,"stream":true}"#;
        let request = Request::read(Operation::Chat, body).unwrap();
        assert_eq!((request.model.as_str(), request.stream), ("b", true));
        assert_eq!(
            request.body(Some("c"), &[]),
            br#"{"model":"c","messages":[1],"stream":true}"#
        );
    }

    #[test]
    fn no_request_names_its_upstream() {
        for name in RESERVED {
            let body = json!({"model": "a", "messages": [1], name: null}).to_string();
            assert!(Request::read(Operation::Chat, body.as_bytes()).is_err(), "{name}");
        }
    }

    #[test]
    fn deep_nesting_is_no_danger() {
        let deep = format!(
            "{{\"model\":\"a\",\"messages\":{}1{}}}",
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        // Refused or taken, it is answered.
        let read = Request::read(Operation::Chat, deep.as_bytes());
        assert!(read.map(|request| request.chat(&[]).is_err()).unwrap_or(true));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            for operation in [Operation::Chat, Operation::Completions, Operation::Embeddings] {
                let _ = Request::read(operation, &body);
            }
        }

        #[test]
        fn objects_survive(extra in proptest::collection::btree_map("[a-z\"é]{1,8}", ".{0,20}", 0..6)) {
            let mut value = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
            for (name, text) in &extra {
                if !RESERVED.contains(&name.as_str()) && !["model", "messages", "stream"].contains(&name.as_str()) {
                    value[name] = Value::from(text.as_str());
                }
            }
            let body = value.to_string();
            let request = Request::read(Operation::Chat, body.as_bytes()).unwrap();
            let sent: Value = serde_json::from_slice(&request.body(Some("m"), &[])).unwrap();
            prop_assert_eq!(sent, value);
        }
    }
}
