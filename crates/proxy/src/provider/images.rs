//! Files and images in messages, as OpenAI's content parts carry them.

/// The media type and the base64 text of a `data:` URL.
pub(super) fn data_url(url: &str) -> Option<(&str, &str)> {
    let rest = url
        .get(..5)
        .filter(|scheme| scheme.eq_ignore_ascii_case("data:"))
        .map(|_| &url[5..])?;
    let (head, data) = rest.split_once(',')?;
    let kind = head.strip_suffix(";base64")?;
    let kind = kind.split(';').next().unwrap_or_default();
    Some((
        if kind.is_empty() {
            "application/octet-stream"
        } else {
            kind
        },
        data.trim(),
    ))
}

/// The media type that the end of a URL's path suggests.
pub(super) fn guessed(url: &str) -> &'static str {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let extension = path.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    match extension.as_str() {
        "png" => "image/png",
        "webp" => "image/webp",
        "gif" => "image/gif",
        "heic" => "image/heic",
        "pdf" => "application/pdf",
        _ => "image/jpeg",
    }
}
