//! JSON, merge and strategic merge patches.

#[tokio::test]
async fn patches_change_what_they_name() {
    super::cases::run(include_str!("cases/patch.json")).await;
}
