//! Logs and proxies of pods and Services.
