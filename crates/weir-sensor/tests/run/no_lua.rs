//! A program without the interpreter: rules with scripts, and a configuration whose outputs are scripts, are refused with the reason.

use std::fs;

use weir_sensor::config::SensorConfig;
use weir_sensor::matcher;
use weir_sensor::rules::Dialect;
use weir_sensor::settings::Settings;
use weir_sensor::worker::Engine;

use super::bed::Folder;

const REASON: &str = "this program was built without Lua";
const SCRIPT: &str = "function init() return {type = 'flow'} end function match() return 1 end function transform(x) return x, #x end function log() end";

#[test]
fn rules_with_scripts_are_refused_and_others_are_not() {
    let folder = Folder::new();
    fs::write(folder.0.join("fine.lua"), SCRIPT).expect("written");
    let rules = folder.0.join("test.rules");
    let text = "\
alert udp any any -> any any (msg:\"m\"; lua:fine.lua; sid:1;)
alert udp any any -> any any (msg:\"m\"; lua:!fine.lua; sid:2;)
alert http any any -> any any (msg:\"m\"; http.uri; luaxform:fine.lua; content:\"a\"; sid:3;)
alert udp any any -> any any (msg:\"m\"; content:\"a\"; sid:4;)
";
    fs::write(&rules, text).expect("written");
    let config = SensorConfig::from_settings(&Settings::default()).expect("right");
    let engine = matcher::Engine::Prefilter;
    let loaded = Engine::load(&config, Dialect::Suricata, &[rules], engine, None);
    let (engine, book, _) = loaded.expect("rules");
    assert_eq!(engine.rules(), 1);
    let refused: Vec<_> = (book.loaded.refused.iter())
        .map(|r| (r.sid, r.reason.as_str()))
        .collect();
    let expected = [1, 2, 3].map(|sid| (Some(sid), REASON));
    assert_eq!(refused, expected);
}

#[test]
fn a_configuration_with_scripts_as_outputs_is_refused() {
    let folder = Folder::new();
    fs::write(folder.0.join("flows"), SCRIPT).expect("written");
    let mut settings = Settings::default();
    for set in [
        "outputs.0.lua.enabled=yes".to_owned(),
        format!("outputs.0.lua.scripts-dir={}", folder.0.display()),
        "outputs.0.lua.scripts.0=flows".to_owned(),
    ] {
        settings.set(&set).expect("a setting");
    }
    let error = SensorConfig::from_settings(&settings).expect_err("refused");
    assert!(error.to_string().contains(REASON), "{error}");
}
