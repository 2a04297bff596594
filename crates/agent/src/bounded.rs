//! Texts of others are cut to a size.

/// `text`, or its first `limit` bytes and how many are left out.
pub(crate) fn shortened(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let end = text.floor_char_boundary(limit);
        let left_out = text.len() - end;
        text.truncate(end);
        text.push_str(&format!("\n[{left_out} more bytes are left out]"));
    }
    text
}
