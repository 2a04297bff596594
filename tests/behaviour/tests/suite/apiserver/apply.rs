//! Server-side apply: owners, conflicts, and fields that go when they are no longer applied.

#[tokio::test]
async fn appliers_own_what_they_say() {
    super::cases::run(include_str!("cases/apply.json")).await;
}
