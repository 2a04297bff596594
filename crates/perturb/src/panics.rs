//! Panics of tasks that nobody waits for: a runtime swallows them, and a controller must not.

use std::{cell::RefCell, panic, sync::Once};

thread_local! {
    /// A lab has its thread to itself: what panics there is its controllers, or itself.
    static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// From now on panics are noted, and still printed.
pub(crate) fn watch() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            SEEN.with_borrow_mut(|seen| seen.push(info.to_string()));
            before(info);
        }));
    });
}

/// The panics of this thread since the last call.
pub(crate) fn take() -> Vec<String> {
    SEEN.with_borrow_mut(std::mem::take)
}
