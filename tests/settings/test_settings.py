"""Options from the command line, the environment and a file: types, precedence, refusals, presets."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from paraserve.settings import PRESETS, ServerSettings, load_settings
from paraserve.settings.declare import ConfigurationError, Option, options_of

OPTIONS = options_of(ServerSettings)
PARA_POLICIES = {
    "openai_chat_default_max_tokens": (0, 32768),
    "openai_force_tool_choice_auto": (False, True),
    "openai_kimi_compat": (False, True),
    "openai_glm_compat": (False, True),
    "openai_flatten_tool_role_text_content": (False, True),
    "openai_streaming_error_preflight": (False, True),
}


def settings(
    arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None, config: Path | None = None
) -> ServerSettings:
    return load_settings(arguments, environment or {}, config=str(config) if config else None).settings


def refusal(*arguments: str, environment: Mapping[str, str] | None = None, config: Path | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        settings(arguments, environment, config)
    message = str(caught.value)
    assert "\n" not in message
    return message


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


# A valid value of each kind as text, as a typed value of a file, and what both mean.
SAMPLES = {
    "text": ("abc", '"abc"', "abc"),
    "integer": ("7", "7", 7),
    "number": ("2.5", "2.5", 2.5),
    "switch": ("true", "true", True),
    "list": ("http://a, http://b", '["http://a", "http://b"]', ("http://a", "http://b")),
    "object": ('{"a": {"b": [1]}}', '{"a": {"b": [1]}}', {"a": {"b": [1]}}),
    "size": ("2MiB", "2097152", 2097152),
}
# Samples of options that take less than their kind does.
SAMPLES_BY_NAME = {
    "trusted_proxies": ("10.0.0.0/8, ::1", '["10.0.0.0/8", "::1"]', ("10.0.0.0/8", "::1")),
    "root_path": ("/llm/a", '"/llm/a"', "/llm/a"),
}
# What another option has to be for this one to be accepted.
NEEDS = {
    "engine_extra_fields": ["--engine-fields-from=anyone"],
    "engine": ["--engine-url=http://x", "--engine-script=x"],
    "ssl_keyfile": ["--ssl-certfile=c.pem"],
    "max_concurrent_requests_per_key": ["--api-key=x"],
    "max_queued_requests_per_key": ["--api-key=x", "--max-concurrent-requests-per-key=1"],
    "openai_kimi_sampling": ["--openai-kimi-compat"],
    "openai_streaming_error_preflight_seconds": ["--openai-streaming-error-preflight"],
}


def sample(option: Option) -> tuple[str, str, object]:
    if option.choices:
        return option.choices[-1], f'"{option.choices[-1]}"', option.choices[-1]
    return SAMPLES_BY_NAME.get(option.name) or SAMPLES[option.kind]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_an_option_means_the_same_from_every_source(option: Option, tmp_path: Path) -> None:
    text, literal, expected = sample(option)
    needs = NEEDS.get(option.name, [])
    underscores = option.flag.replace("-", "_").replace("__", "--", 1)
    flag = [option.flag] if option.kind == "switch" else [option.flag, text]
    assert getattr(settings([*needs, *flag]), option.name) == expected
    assert getattr(settings([*needs, f"{option.flag}={text}"]), option.name) == expected
    assert getattr(settings([*needs, f"{underscores}={text}"]), option.name) == expected
    assert getattr(settings(needs, {option.variable: text}), option.name) == expected
    for key in (option.key, option.name):
        yaml = written(tmp_path, "c.yaml", f"{key}: {literal}\n")
        assert getattr(settings(needs, config=yaml), option.name) == expected
    if option.kind != "object":
        toml = written(tmp_path, "c.toml", f"{option.key} = {literal}\n")
        assert getattr(settings(needs, config=toml), option.name) == expected


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_an_option_is_explained(option: Option) -> None:
    assert option.help.endswith(".")
    assert option.group
    assert option.default_text


def test_the_command_line_wins_over_the_environment_which_wins_over_the_file(tmp_path: Path) -> None:
    config = written(tmp_path, "c.toml", 'port = 1\nhost = "file"\nlog-level = "error"\n')
    environment = {"PARASERVE_PORT": "2", "PARASERVE_HOST": "environment"}
    loaded = load_settings(["--port", "3"], environment, config=str(config))
    assert (loaded.settings.port, loaded.settings.host, loaded.settings.log_level) == (3, "environment", "error")
    assert loaded.origins == {"port": "--port", "host": "PARASERVE_HOST", "log_level": f"{config}: log-level"}


def test_a_switch_that_the_file_turns_on_can_be_turned_off_again(tmp_path: Path) -> None:
    config = written(tmp_path, "c.yaml", "enable-cache-report: yes\n")
    assert settings(config=config).enable_cache_report is True
    assert settings(["--no-enable-cache-report"], config=config).enable_cache_report is False
    assert settings(["--no_enable_cache_report"], config=config).enable_cache_report is False
    assert settings(environment={"PARASERVE_ENABLE_CACHE_REPORT": "0"}, config=config).enable_cache_report is False


def test_a_repeated_flag_adds_to_a_list_and_replaces_anything_else() -> None:
    got = settings(["--served-model-name", "a,b", "--served-model-name=c", "--port", "1", "--port", "2"])
    assert got.served_model_name == ("a", "b", "c")
    assert got.port == 2


def test_yaml_off_is_the_word_where_a_choice_has_it(tmp_path: Path) -> None:
    assert settings(config=written(tmp_path, "c.yaml", "history-normalization: off\n")).history_normalization == "off"


def test_an_empty_file_and_empty_values_count_as_unset(tmp_path: Path) -> None:
    assert settings(config=written(tmp_path, "c.yaml", "")) == ServerSettings()
    assert settings(config=written(tmp_path, "d.yaml", "port:\n")) == ServerSettings()
    assert settings(environment={"PARASERVE_PORT": ""}) == ServerSettings()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--prot", "1"], "unknown flag --prot; did you mean --port?"),
        (
            ["--no-enable-cache-reports"],
            "unknown flag --no-enable-cache-reports; did you mean --no-enable-cache-report?",
        ),
        (["--tp_size", "8"], "unknown flag --tp_size (see --help)"),
        (["--port", "ten"], "--port: 'ten' is not valid: expected a whole number"),
        (["--port=70000"], "--port: '70000' is not valid: expected 0 to 65535"),
        (["--parallel", "0"], "--parallel: '0' is not valid: expected 1 or more"),
        (["--port"], "--port needs a value: --port N"),
        (["--host", "--port", "1"], "--host needs a value: --host TEXT"),
        (["--drain-timeout", "-1"], "--drain-timeout: '-1' is not valid: expected 0 or more"),
        (["--drain-timeout", "inf"], "--drain-timeout: 'inf' is not valid: expected a number"),
        (["--drain-timeout", "nan"], "--drain-timeout: 'nan' is not valid: expected 0 or more"),
        (["--engine", "trt"], "--engine: 'trt' is not valid: expected one of llama.cpp, sglang, vllm, scripted"),
        (["--chat-template-kwargs", "[1]"], "--chat-template-kwargs: '[1]' is not valid: expected a JSON object"),
        (["--max-body-size", "1TB"], "--max-body-size: '1TB' is not valid: expected a size such as 64MiB or a number"),
        (
            ["--enable-cache-report", "true"],
            "--enable-cache-report takes no value: write --enable-cache-report or --no-",
        ),
        (["--no-enable-cache-report=1"], "--no-enable-cache-report takes no value"),
        (["model.gguf"], "unexpected argument 'model.gguf': every option is a --flag"),
        (["--engine", "sglang"], "--engine: sglang needs --model-path with the checkpoint's tokenizer files"),
        (["--engine=scripted"], "--engine: the scripted engine needs --engine-script PATH"),
        (["--engine-url", "localhost:1"], "--engine-url: 'localhost:1' is not valid: expected http://host:port or"),
        (
            ["--max-concurrent-requests-per-key=1"],
            "--max-concurrent-requests-per-key: has no effect without --api-key or --api-key-file",
        ),
        (
            ["--max-queued-requests-per-key=1"],
            "--max-queued-requests-per-key: has no effect without --max-concurrent-requests-per-key",
        ),
        (
            ["--engine-extra-fields=note"],
            "--engine-extra-fields: nobody may send them: --engine-fields-from proxies or anyone says who may",
        ),
        (
            ["--engine-fields-from=proxies", "--trusted-proxies="],
            "--engine-fields-from: has no effect without --trusted-proxies",
        ),
        (["--engine-fields-key", "a b"], "--engine-fields-key: a key is visible ASCII characters without spaces"),
        (
            ["--response-store", "memory", "--workers", "2"],
            "--response-store: memory is of one process, and --workers starts several",
        ),
        (["--openai-kimi-sampling", "fill"], "--openai-kimi-sampling: has no effect without --openai-kimi-compat"),
    ],
)
def test_a_refused_command_line_says_what_would_be_right(arguments: list[str], expected: str) -> None:
    assert refusal(*arguments).startswith(expected)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PARASERVE_PORT": "x"}, "PARASERVE_PORT: 'x' is not valid: expected a whole number"),
        (
            {"PARASERVE_OPENAI_GLM_COMPAT": "maybe"},
            "PARASERVE_OPENAI_GLM_COMPAT: 'maybe' is not valid: expected true or",
        ),
    ],
)
def test_a_refused_variable_is_named(environment: dict[str, str], expected: str) -> None:
    assert refusal(environment=environment).startswith(expected)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("c.yaml", "prot: 1", "{path}: prot: unknown key; did you mean port?"),
        ("c.yaml", "port: true", "{path}: port: True is not valid: expected a whole number"),
        ("c.yaml", "served-model-name: [1]", "{path}: served-model-name: [1] is not valid: expected a text or a list"),
        ("c.yaml", "- port", "configuration file {path}: expected option names with values at the top level"),
        ("c.yaml", "a: [", "configuration file {path} is not YAML: "),
        ("c.toml", "port 1", "configuration file {path} is not TOML: "),
        ("c.ini", "port=1", "configuration file {path}: .ini is not .yaml, .yml, .json or .toml"),
    ],
)
def test_a_refused_file_is_named_with_its_key(tmp_path: Path, name: str, text: str, expected: str) -> None:
    path = written(tmp_path, name, text)
    assert refusal(config=path).startswith(expected.format(path=path))


def test_a_file_that_is_not_there_is_a_configuration_error(tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    assert refusal(config=missing) == f"cannot read configuration file {missing}: No such file or directory"


def test_a_variable_that_resembles_an_option_is_a_warning() -> None:
    loaded = load_settings([], {"PARASERVE_PROT": "1", "PARASERVE_SHARED_ASSETS": "/x", "HOME": "/"})
    assert loaded.settings == ServerSettings()
    assert loaded.warnings == (
        "environment variable PARASERVE_PROT is not an option and is ignored; did you mean PORT?",
    )


def test_the_variables_of_a_kubernetes_service_named_paraserve_are_not_options() -> None:
    links = {
        "PARASERVE_PORT": "tcp://10.0.0.1:80",
        "PARASERVE_PORT_80_TCP": "tcp://10.0.0.1:80",
        "PARASERVE_PORT_80_TCP_PORT": "80",
        "PARASERVE_SERVICE_HOST": "10.0.0.1",
        "PARASERVE_SERVICE_PORT": "80",
    }
    loaded = load_settings([], links)
    assert (loaded.settings, loaded.warnings) == (ServerSettings(), ())


def test_a_password_in_a_url_that_is_refused_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as refused:
        settings(["--engine", "sglang", "--model-path", "m", "--engine-url", "joe:hunter2@host:1"])
    assert "'host:1' is not valid" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_secret_is_never_shown() -> None:
    assert "hunter2" not in repr(settings(["--api-key", "hunter2"]))


def test_the_policies_have_their_contracted_names_and_are_off_by_default() -> None:
    defaults = ServerSettings()
    assert {name: getattr(defaults, name) for name in PARA_POLICIES} == {
        n: off for n, (off, _) in PARA_POLICIES.items()
    }


def test_the_para_preset_switches_the_six_policies_on_and_nothing_else() -> None:
    got = settings(["--openai-compat", "para"])
    assert got == ServerSettings(openai_compat="para", **{name: on for name, (_, on) in PARA_POLICIES.items()})
    assert set(PRESETS["para"]) == set(PARA_POLICIES)


@pytest.mark.parametrize("preset_first", [True, False])
def test_a_value_beside_the_preset_wins(preset_first: bool) -> None:
    preset, others = ["--openai-compat=para"], ["--no-openai-kimi-compat", "--openai-chat-default-max-tokens=9"]
    got = settings([*preset, *others] if preset_first else [*others, *preset])
    assert (got.openai_kimi_compat, got.openai_chat_default_max_tokens, got.openai_glm_compat) == (False, 9, True)


def test_a_preset_stands_at_the_rank_of_its_source(tmp_path: Path) -> None:
    config = written(tmp_path, "c.yaml", "openai-kimi-compat: false\n")
    assert settings(["--openai-compat=para"], config=config).openai_kimi_compat is True
    preset = written(tmp_path, "d.yaml", "openai-compat: para\n")
    assert settings(environment={"PARASERVE_OPENAI_KIMI_COMPAT": "off"}, config=preset).openai_kimi_compat is False


@pytest.mark.parametrize(
    "arguments",
    [
        ["--api-key", ""],
        ["--api-key", " , "],
        ["--api-key", "two words"],
        ["--api-key", "k\u00e9y"],
        ["--ssl-keyfile", "key.pem"],
        ["--root-path", "llm"],
        ["--root-path", "/llm/"],
        ["--root-path", "/"],
        ["--allowed-origins", "app.example"],
        ["--allowed-origins", "https://app.example/"],
        ["--trusted-proxies", "proxy.example"],
        ["--trusted-proxies", "10.0.0.1/8"],
    ],
    ids=" ".join,
)
def test_a_door_that_would_stand_open_or_shut_by_mistake_is_refused(arguments: list[str]) -> None:
    message = refusal(*arguments)
    assert arguments[0] in message
    assert arguments[0] != "--api-key" or not arguments[1].strip(" ,") or arguments[1] not in message


def test_keys_add_up_on_the_command_line_and_are_not_shown() -> None:
    given = settings(["--api-key", "a1", "--api-key", "b2,c3"])
    assert given.api_key == ("a1", "b2", "c3")
    assert "a1" not in repr(given)


@pytest.mark.parametrize("key", ["api-key", "api_key", "api-key-file"])
@pytest.mark.parametrize("text", ["{}:", "{}: null", "{}: ''", "{}: []", "{}: ~"])
def test_a_key_that_the_file_names_and_leaves_empty_ends_the_start(tmp_path: Path, key: str, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text.format(key))
    with pytest.raises(ConfigurationError, match=re.escape(f"{file}: {key}")):
        load_settings([], {}, config=str(file))


@pytest.mark.parametrize("variable", ["PARASERVE_API_KEY", "PARASERVE_API_KEY_FILE"])
def test_a_variable_of_keys_that_is_empty_ends_the_start(variable: str) -> None:
    with pytest.raises(ConfigurationError, match=variable):
        load_settings([], {variable: ""})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.yaml", "port: 1\nport: 2\n"),
        ("c.yaml", "open-health: true\nopen_health: false\n"),
        ("c.json", '{"port": 1, "host": "x", "port": 1}'),
        ("c.yaml", "chat-template-kwargs:\n  a: 1\n  a: 2\n"),
        ("c.toml", "port = 1\nport = 2\n"),
        ("c.toml", "open-health = true\nopen_health = false\n"),
    ],
)
def test_a_key_that_stands_twice_in_a_file_is_refused(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=re.escape(str(file))):
        load_settings([], {}, config=str(file))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], False),
        (["--host=localhost"], False),
        (["--host=127.9.9.9"], False),
        (["--host=::1"], False),
        (["--host=0.0.0.0", "--api-key=x"], False),
        (["--host=0.0.0.0", "--api-key-file=x"], False),
        (["--host=0.0.0.0"], True),
        (["--host=::"], True),
        (["--host=10.0.0.7"], True),
        (["--host=gpu-box"], True),
    ],
)
def test_a_server_that_anybody_may_use_is_warned_of_at_the_start(arguments: list[str], told: bool) -> None:
    warnings = load_settings(arguments, {}).warnings
    assert [warning for warning in warnings if "without --api-key" in warning] == list(warnings)
    assert bool(warnings) is told
