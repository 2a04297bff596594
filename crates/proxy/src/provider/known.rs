//! The providers that models are named after: `PROVIDER/MODEL`, with LiteLLM's names, addresses and variables.

/// How a provider is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    /// The built-in mock.
    Mock,
    /// OpenAI's.
    OpenAi,
    /// Azure OpenAI's: OpenAI's bodies at other addresses.
    Azure,
    /// Anthropic's Messages.
    Anthropic,
    /// Google's generateContent.
    Gemini,
    /// OpenAI's, below the address of an Ollama server.
    Ollama,
}

/// A provider.
#[derive(Debug)]
pub(crate) struct Known {
    /// What stands before the `/`.
    pub(crate) name: &'static str,
    pub(crate) api: Api,
    /// Where it is, unless the configuration says otherwise; empty: that has to be said.
    pub(crate) base: &'static str,
    /// The variables that say where it is, the first that is set.
    pub(crate) base_variables: &'static [&'static str],
    /// The variables with its key, the first that is set.
    pub(crate) key_variables: &'static [&'static str],
    /// Whether it answers nobody without a key.
    pub(crate) needs_key: bool,
}

const fn open_ai(
    name: &'static str,
    base: &'static str,
    base_variables: &'static [&'static str],
    key_variables: &'static [&'static str],
) -> Known {
    Known {
        name,
        api: Api::OpenAi,
        base,
        base_variables,
        key_variables,
        needs_key: true,
    }
}

/// A server of one's own, which may take everybody.
const fn own(
    name: &'static str,
    base: &'static str,
    base_variables: &'static [&'static str],
    key_variables: &'static [&'static str],
) -> Known {
    Known {
        needs_key: false,
        ..open_ai(name, base, base_variables, key_variables)
    }
}

/// All of them. Addresses and variables are those of LiteLLM's `get_llm_provider_logic.py`.
pub(crate) const PROVIDERS: &[Known] = &[
    open_ai(
        "openai",
        "https://api.openai.com/v1",
        &["OPENAI_BASE_URL", "OPENAI_API_BASE"],
        &["OPENAI_API_KEY"],
    ),
    Known {
        name: "azure",
        api: Api::Azure,
        base: "",
        base_variables: &["AZURE_API_BASE"],
        key_variables: &["AZURE_API_KEY"],
        needs_key: true,
    },
    Known {
        name: "anthropic",
        api: Api::Anthropic,
        base: "https://api.anthropic.com",
        base_variables: &["ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"],
        key_variables: &["ANTHROPIC_API_KEY"],
        needs_key: true,
    },
    Known {
        name: "gemini",
        api: Api::Gemini,
        base: "https://generativelanguage.googleapis.com/v1beta",
        base_variables: &["GEMINI_API_BASE"],
        key_variables: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        needs_key: true,
    },
    Known {
        name: "ollama",
        api: Api::Ollama,
        base: "http://localhost:11434",
        base_variables: &["OLLAMA_API_BASE"],
        key_variables: &["OLLAMA_API_KEY"],
        needs_key: false,
    },
    Known {
        name: "ollama_chat",
        api: Api::Ollama,
        base: "http://localhost:11434",
        base_variables: &["OLLAMA_API_BASE"],
        key_variables: &["OLLAMA_API_KEY"],
        needs_key: false,
    },
    Known {
        name: "mock",
        api: Api::Mock,
        base: "",
        base_variables: &[],
        key_variables: &[],
        needs_key: false,
    },
    own(
        "hosted_vllm",
        "",
        &["HOSTED_VLLM_API_BASE"],
        &["HOSTED_VLLM_API_KEY"],
    ),
    own("lm_studio", "", &["LM_STUDIO_API_BASE"], &["LM_STUDIO_API_KEY"]),
    own(
        "litellm_proxy",
        "",
        &["LITELLM_PROXY_API_BASE"],
        &["LITELLM_PROXY_API_KEY"],
    ),
    own("custom_openai", "", &[], &[]),
    own(
        "llamafile",
        "http://127.0.0.1:8080/v1",
        &["LLAMAFILE_API_BASE"],
        &["LLAMAFILE_API_KEY"],
    ),
    open_ai(
        "openrouter",
        "https://openrouter.ai/api/v1",
        &["OPENROUTER_API_BASE"],
        &["OPENROUTER_API_KEY", "OR_API_KEY"],
    ),
    open_ai(
        "groq",
        "https://api.groq.com/openai/v1",
        &["GROQ_API_BASE"],
        &["GROQ_API_KEY"],
    ),
    open_ai(
        "mistral",
        "https://api.mistral.ai/v1",
        &["MISTRAL_API_BASE"],
        &["MISTRAL_API_KEY"],
    ),
    open_ai(
        "deepseek",
        "https://api.deepseek.com/v1",
        &["DEEPSEEK_API_BASE"],
        &["DEEPSEEK_API_KEY"],
    ),
    open_ai("xai", "https://api.x.ai/v1", &["XAI_API_BASE"], &["XAI_API_KEY"]),
    open_ai(
        "together_ai",
        "https://api.together.xyz/v1",
        &["TOGETHER_AI_API_BASE"],
        &[
            "TOGETHER_API_KEY",
            "TOGETHER_AI_API_KEY",
            "TOGETHERAI_API_KEY",
            "TOGETHER_AI_TOKEN",
        ],
    ),
    open_ai(
        "perplexity",
        "https://api.perplexity.ai",
        &["PERPLEXITY_API_BASE"],
        &["PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"],
    ),
    open_ai(
        "cerebras",
        "https://api.cerebras.ai/v1",
        &["CEREBRAS_API_BASE"],
        &["CEREBRAS_API_KEY"],
    ),
    open_ai(
        "sambanova",
        "https://api.sambanova.ai/v1",
        &["SAMBANOVA_API_BASE"],
        &["SAMBANOVA_API_KEY"],
    ),
    open_ai(
        "nvidia_nim",
        "https://integrate.api.nvidia.com/v1",
        &["NVIDIA_NIM_API_BASE"],
        &["NVIDIA_NIM_API_KEY"],
    ),
    open_ai(
        "deepinfra",
        "https://api.deepinfra.com/v1/openai",
        &["DEEPINFRA_API_BASE"],
        &["DEEPINFRA_API_KEY"],
    ),
    open_ai(
        "moonshot",
        "https://api.moonshot.ai/v1",
        &["MOONSHOT_API_BASE"],
        &["MOONSHOT_API_KEY"],
    ),
    open_ai(
        "dashscope",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        &["DASHSCOPE_API_BASE"],
        &["DASHSCOPE_API_KEY"],
    ),
    open_ai(
        "meta_llama",
        "https://api.llama.com/compat/v1",
        &["LLAMA_API_BASE"],
        &["LLAMA_API_KEY"],
    ),
    open_ai(
        "github",
        "https://models.inference.ai.azure.com",
        &["GITHUB_API_BASE"],
        &["GITHUB_API_KEY"],
    ),
];

/// The provider of this name.
pub(crate) fn provider(name: &str) -> Option<&'static Known> {
    PROVIDERS.iter().find(|known| known.name == name)
}

/// The providers of models whose names say it, by how they begin.
pub(crate) const MAKERS: [(&str, &str); 7] = [
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("text-embedding-", "openai"),
    ("claude-", "anthropic"),
];

/// The provider of a model that is named without one, where the name says it.
pub(crate) fn of_bare_name(model: &str) -> Option<&'static Known> {
    let (_, name) = MAKERS.iter().find(|(start, _)| model.starts_with(start))?;
    provider(name)
}

/// The names of all.
pub fn providers() -> impl Iterator<Item = &'static str> {
    PROVIDERS.iter().map(|known| known.name)
}

/// The names of all, for messages.
pub(crate) fn names() -> String {
    providers().collect::<Vec<_>>().join(", ")
}
