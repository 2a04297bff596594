//! How far the controllers are with what they have to know before they work.

use futures::future::{BoxFuture, join_all};
use tokio::sync::watch;

/// Which kinds have been listed. Cheap to clone; clones know the same.
#[derive(Clone, Debug, Default)]
pub struct Listing(watch::Sender<Option<Vec<(&'static str, bool)>>>);

impl Listing {
    /// Each kind, as kubectl names it, and whether it has been listed. Nothing as long as the API server has not
    /// said that it serves the kinds.
    pub fn kinds(&self) -> Option<Vec<(&'static str, bool)>> {
        self.0.borrow().clone()
    }

    /// Takes note of when each kind has been listed, and ends when all have been.
    pub(crate) async fn follow(self, kinds: Vec<(&'static str, BoxFuture<'static, ()>)>) {
        self.0
            .send_replace(Some(kinds.iter().map(|(kind, _)| (*kind, false)).collect()));
        let notes = kinds.into_iter().map(async |(kind, listed)| {
            listed.await;
            self.0.send_modify(|known| {
                let all = known.iter_mut().flatten();
                all.filter(|(other, _)| *other == kind)
                    .for_each(|(_, is_listed)| *is_listed = true);
            });
        });
        join_all(notes).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, channel::oneshot, poll};

    use super::*;

    #[tokio::test]
    async fn each_kind_is_known_to_be_listed_once_it_is() {
        let listing = Listing::default();
        assert_eq!(listing.kinds(), None);
        let (first_is, first) = oneshot::channel();
        let (second_is, second) = oneshot::channel();
        let kinds = vec![
            ("first", first.map(Result::unwrap).boxed()),
            ("second", second.map(Result::unwrap).boxed()),
        ];
        let mut all = Box::pin(listing.clone().follow(kinds));
        assert!(poll!(&mut all).is_pending());
        assert_eq!(listing.kinds().unwrap(), [("first", false), ("second", false)]);
        second_is.send(()).unwrap();
        assert!(poll!(&mut all).is_pending());
        assert_eq!(listing.kinds().unwrap(), [("first", false), ("second", true)]);
        first_is.send(()).unwrap();
        assert!(poll!(&mut all).is_ready());
        assert_eq!(listing.kinds().unwrap(), [("first", true), ("second", true)]);
    }
}
