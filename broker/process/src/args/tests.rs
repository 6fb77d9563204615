use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Program {
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    broker: BrokerAddressArgs,
    #[command(flatten)]
    debug: DebugArgs,
}

fn parse(args: &[&str]) -> Program {
    Program::try_parse_from(["program"].iter().chain(args)).unwrap()
}

#[test]
fn groups_have_the_documented_defaults() {
    let program = parse(&[]);
    assert_eq!(program.log.level.directives(), "warn");
    assert_eq!(program.log.format, LogFormat::Text);
    assert_eq!(program.broker.address, "http://localhost:8080");
    assert_eq!(program.broker.zone, "local");
    assert_eq!(program.debug.port, None);
    assert!(!program.debug.private);
    let any = ListenAddress::Tcp {
        host: String::new(),
        port: 0,
    };
    assert_eq!(program.listen.listen_address(), Ok(any));
    assert_eq!(program.listen.advertised_host(), host_name());
}

#[test]
fn fatal_is_a_level_and_other_words_are_not() {
    for (text, directives) in [
        ("fatal", Some("error")),
        ("debug", Some("debug")),
        (
            "warn,gazette_broker=debug",
            Some("warn,gazette_broker=debug"),
        ),
        ("loud", None),
        ("", None),
        ("a=loud", None),
    ] {
        let level = text.parse::<LogLevel>().ok();
        assert_eq!(
            level.as_ref().map(LogLevel::directives),
            directives,
            "{text:?}"
        );
    }
}

#[test]
fn a_loopback_host_is_not_bound_on_every_interface() {
    for (args, bound) in [
        (
            &["--broker.host=localhost", "--broker.port=80"][..],
            "localhost:80",
        ),
        (
            &["--broker.host=127.0.0.1", "--broker.port=80"],
            "127.0.0.1:80",
        ),
        (&["--broker.host=::1", "--broker.port=80"], "[::1]:80"),
        (
            &["--broker.host=broker-1.example", "--broker.port=80"],
            ":80",
        ),
        (
            &["--broker.bind=10.0.0.1", "--broker.port=80"],
            "10.0.0.1:80",
        ),
        (&["--broker.port=unix:///run/s"], "unix:///run/s"),
    ] {
        let address = parse(args).listen.listen_address().unwrap();
        assert_eq!(address.to_string(), bound, "{args:?}");
    }
}

#[test]
fn a_port_that_is_none_is_refused() {
    for port in ["eighty", "65536", "-1", "unix://run/s"] {
        let args = [format!("--broker.port={port}")];
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        assert!(parse(&args).listen.listen_address().is_err(), "{port}");
    }
}
