//! From an answer of generateContent to a chat completion.

use kaos_openai::{ChatResponse, Choice, Content, FinishReason, Message, ToolCall};

use super::{Candidate, EXTRA, Said, finish, signed};
use crate::provider::Origin;

pub(in super::super) fn answer(origin: &Origin, body: &[u8]) -> Result<ChatResponse, String> {
    let said: Said = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if said.candidates.is_empty() && said.prompt_feedback.is_null() {
        return Err("it has no candidates".to_owned());
    }
    let origin = Origin {
        id: said.response_id.unwrap_or_else(|| origin.id.clone()),
        model: said.model_version.unwrap_or_else(|| origin.model.clone()),
        created: origin.created,
    };
    let blocked = Message::assistant("");
    let mut response = ChatResponse::new(
        &origin.id,
        origin.created,
        &origin.model,
        blocked,
        FinishReason::ContentFilter,
        said.usage_metadata.unwrap_or_default().usage(),
    );
    if !said.candidates.is_empty() {
        let choices = said
            .candidates
            .into_iter()
            .map(|candidate| choice(&origin, candidate));
        response.choices = choices.collect();
    }
    Ok(response)
}

fn choice(origin: &Origin, candidate: Candidate) -> Choice {
    let extra = candidate.probabilities();
    let (mut text, mut thought) = (String::new(), String::new());
    let mut calls: Vec<ToolCall> = Vec::new();
    for part in candidate.content.parts {
        if let Some(said) = &part.text {
            (if part.thought { &mut thought } else { &mut text }).push_str(said);
        }
        if let Some(function) = &part.function_call {
            let id = function.identifier(origin, candidate.index, calls.len());
            let mut call = ToolCall::new(id, &function.name, function.arguments());
            if let Some(signature) = &part.thought_signature {
                call.extra.insert(EXTRA.to_owned(), signed(signature));
            }
            calls.push(call);
        }
    }
    let reason = candidate.finish_reason.as_deref().unwrap_or_default();
    let reason = finish(reason, !calls.is_empty());
    let mut message = Message {
        content: Some(Content::Text(text)).filter(|text| calls.is_empty() || !text.text().is_empty()),
        tool_calls: calls,
        ..Message::assistant("")
    };
    if !thought.is_empty() {
        message
            .extra
            .insert("reasoning_content".to_owned(), thought.into());
    }
    Choice {
        index: candidate.index,
        message,
        finish_reason: Some(reason),
        extra,
    }
}
