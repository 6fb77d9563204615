//! Arguments, help and exit codes.

use crate::House;

#[test]
fn exit_codes_tell_usage_from_failure_and_from_later() {
    let house = House::new(&[]);
    assert_eq!(house.run("journals list --bogus").code, Some(2));
    assert_eq!(
        house.run_of(&["journals", "list", "-l", "a b c"]).code,
        Some(2)
    );
    assert_eq!(house.run("journals").code, Some(2));
    assert_eq!(house.run("bogus").code, Some(2));
    house
        .run_of(&["journals", "delete", "-l", ""])
        .failed(2, &["; next: "]);
    house
        .run("journals append -l name=app/log -m modulo")
        .failed(2, &["; next: add -f lines"]);
    let help = house.run("journals append --help").done();
    assert!(
        help.contains("Examples:") && help.contains("Selectors:"),
        "{help}"
    );
    let mut away = house.command("journals list");
    away.env("BROKER_ADDRESS", "http://127.0.0.1:1");
    assert_eq!(away.output().unwrap().status.code(), Some(75));
    let mut wrong = house.command("journals list");
    wrong.env("BROKER_ADDRESS", "ftp://127.0.0.1:1");
    assert_eq!(wrong.output().unwrap().status.code(), Some(1));
    let bash = house.run("completions bash").done();
    assert!(bash.contains("journals"), "{bash}");
}

#[test]
fn every_command_has_help_with_examples() {
    let house = House::new(&[]);
    for command in [
        "list",
        "apply",
        "append",
        "read",
        "delete",
        "fragments",
        "flush",
        "suspend",
        "reset-head",
        "store-health",
    ] {
        let help = house.run(&format!("journals {command} --help")).done();
        assert!(help.contains("Examples:"), "{command}: {help}");
        assert!(help.contains("--broker.address"), "{command}: {help}");
    }
    for command in ["append", "read"] {
        let help = house.run(&format!("bench {command} --help")).done();
        assert!(
            help.contains("Examples:") && help.contains("Result:"),
            "{command}: {help}"
        );
    }
    let help = house.run("--help").done();
    assert!(help.contains("Exit codes:"), "{help}");
}
