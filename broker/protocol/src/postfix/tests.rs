use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn evaluate(template: &str) -> Result<String> {
    let context = PostfixContext {
        fragment: &Fragment {
            journal: "acme/orders".to_owned(),
            begin: 1024,
            end: 4096,
            compression_codec: crate::CompressionCodec::Gzip.into(),
            ..Fragment::default()
        },
        // 2024-02-09 17:07:08.120 UTC
        first_append_time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_707_498_428_120),
        registers: &LabelSet::from_pairs([("author", "abc"), ("region", "eu")]),
        spec: &JournalSpec {
            name: "acme/orders".to_owned(),
            replication: 3,
            labels: LabelSet::from_pairs([("tag", "a"), ("tag", "b")]),
            ..JournalSpec::default()
        },
    };
    Template::parse(template)?.evaluate(&context)
}

#[test]
fn layouts_print_as_in_go() {
    for (layout, text) in [
        ("2006-01-02T15:04:05Z07:00", "2024-02-09T17:07:08Z"),
        ("06-1-2 3:4:5 pm", "24-2-9 5:7:8 pm"),
        ("January Monday Jan Mon", "February Friday Feb Fri"),
        ("Janet Mondays Months", "Janet Fridays Months"),
        ("002 __2 _2 _2006", "040  40  9 _2024"),
        (
            "05.000 05.999 05,9999 .0000000000",
            "08.120 08.12 08,12 .120000000",
        ),
        ("03 PM MST -0700 -07:00 -07", "05 PM UTC +0000 +00:00 +00"),
        ("hour=15", "hour=17"),
        ("x/é", "x/é"),
    ] {
        let template = format!("{{{{ .Spool.FirstAppendTime.Format {layout:?} }}}}");
        assert_eq!(evaluate(&template).unwrap(), text, "{layout}");
    }
}

#[test]
fn templates_make_what_go_makes() {
    for (template, text) in [
        ("{{ if .Spool.Begin }}x{{ else }}y{{ end }}", "x"),
        (
            "{{ if not .Spool.Begin }}x{{ else if eq 1 2 }}y{{ else }}z{{ end }}",
            "z",
        ),
        (
            "{{ range $i, $v := .ValuesOf \"tag\" }}{{ $i }}={{ $v }};{{ end }}",
            "0=a;1=b;",
        ),
        (
            "{{ range .ValuesOf \"tag\" }}{{ . }}{{ break }}{{ end }}",
            "a",
        ),
        (
            "{{ range .ValuesOf \"none\" }}x{{ else }}empty{{ end }}",
            "empty",
        ),
        (
            "{{ $x := \"a\" }}{{ range .ValuesOf \"tag\" }}{{ $x = . }}{{ end }}{{ $x }}",
            "b",
        ),
        (
            "{{ with $x := .Name }}{{ $x }}{{ . }}{{ end }}",
            "acme/ordersacme/orders",
        ),
        (
            "{{ printf \"%05d|%-4s|%4s|%x|%q|%+d\" 42 \"ab\" \"cd\" \"hi\" \"q\" 1 }}",
            "00042|ab  |  cd|6869|\"q\"|+1",
        ),
        (
            "{{ printf \"%d %s\" .Spool.CompressionCodec .Spool.CompressionCodec }}",
            "2 GZIP",
        ),
        ("{{ printf \"%02d\" .Spool.FirstAppendTime.Month }}", "02"),
        ("{{ .Spool.FirstAppendTime.Month }}", "February"),
        ("{{ (index .Spool.Registers.Labels 1).Value }}", "eu"),
        ("{{ \"region\" | .Spool.Registers.ValueOf }}", "eu"),
        ("{{ and 1 0 \"x\" }}{{ or 0 \"\" \"y\" }}", "0y"),
        ("{{ print 1 2 \"a\" 3 }}", "1 2a3"),
        (
            "{{ len \"abc\" }}{{ 'a' }}{{ 0x1F }}{{ -3 }}{{ true }}{{ 1.5 }}",
            "39731-3true1.5",
        ),
        ("{{ `raw\\n` }}{{ \"\\u00e9\\x41\" }}", "raw\\néA"),
        ("a {{- /* gone */ -}} b", "ab"),
        ("a\n{{- 3 -}}\nb", "a3b"),
        (
            "{{ .Spool.Fragment }}",
            "{acme/orders 1024 4096 {0 0 0} GZIP  0 }",
        ),
        (
            "{{ .Spool.Registers }}",
            "{[{author abc false} {region eu false}]}",
        ),
        (
            "{{ lt 1 2 }}{{ ge \"b\" \"a\" }}{{ ne 1 1 }}",
            "truetruefalse",
        ),
        ("{{ $ .Name }}", "never"),
    ] {
        if text == "never" {
            evaluate(template).unwrap_err();
            continue;
        }
        assert_eq!(evaluate(template).as_deref(), Ok(text), "{template}");
    }
}

#[test]
fn faults_are_told_where_they_are() {
    use TemplateErrorCause as Cause;

    let cause = |template: &str| validate(template).unwrap_err();
    assert_eq!(cause("ab{{").at, 2);
    assert_eq!(cause("{{").cause, Cause::Unclosed { what: "an action" });
    assert_eq!(
        cause("{{ nofunc }}").cause,
        Cause::UnknownFunction {
            name: "nofunc".to_owned()
        }
    );
    assert_eq!(
        cause("{{ $x }}").cause,
        Cause::UnknownVariable {
            name: "$x".to_owned()
        }
    );
    assert_eq!(
        cause("{{ template \"x\" }}").cause,
        Cause::Unsupported {
            what: "\"template\"".to_owned()
        }
    );
    assert_eq!(
        cause("{{ .Spool.ContentName }}").to_string(),
        "path postfix template: the spool has no field or method \"ContentName\" (at byte 3)",
    );
    assert_eq!(
        cause("{{ index .Spool.Registers.Labels 0 }}").cause,
        Cause::IndexOutOfRange {
            index: 0,
            length: 0
        },
    );
    for template in [
        "{{ }}",
        "{{ if }}x{{ end }}",
        "{{ if 1 }}",
        "{{ end }}",
        "{{ else }}",
        "{{ (1 }}",
        "{{ 1 | 2 }}",
        "{{ eq 1 \"a\" }}",
        "{{ .Spool.Begin 1 }}",
        "{{ .Suspend.Level }}",
        "{{ .JournalSpec }}",
        "{{ \"a }}",
        "{{ 12x }}",
        "{{ printf \"%d\" \"a\" }}",
        "{{ printf \"%d\" }}",
        "{{ printf \"%99999999d\" 1 }}",
        "{{ break }}",
        "{{ nil }}",
        "{{ .Spool.FirstAppendTime.Format }}",
        "{{ .Spool.FirstAppendTime.Format 1 }}",
        "{{ range 3 }}x{{ end }}",
        "{{ slice \"é\" 1 }}",
        "{{ /* }}",
        "{{ $x = 1 }}",
        "{{ if 1 }}{{ $x := 1 }}{{ end }}{{ $x }}x{{",
        "{{ html \"a\" }}",
        "{{ a:b }}",
    ] {
        validate(template).unwrap_err();
    }
}

#[test]
fn hostile_templates_are_cut_short() {
    let doubling = "{{ $x = print $x $x }}".repeat(64);
    validate(&format!("{{{{ $x := \"aa\" }}}}{doubling}")).unwrap_err();
    validate(&"{{ if 1 }}".repeat(100_000)).unwrap_err();
    validate(&format!("{{{{ {} }}}}", "(".repeat(100_000))).unwrap_err();
    let else_if = "{{ if 0 }}".to_owned() + &"{{ else if 0 }}".repeat(100_000);
    validate(&else_if).unwrap_err();
    let labels = LabelSet::from_pairs((0..100).map(|i| (format!("l{i}"), "")));
    let spec = JournalSpec {
        labels,
        ..JournalSpec::default()
    };
    let nested = "{{ range $.Labels }}".repeat(30) + &"{{ end }}".repeat(30);
    let context = PostfixContext {
        fragment: &Fragment::default(),
        first_append_time: SystemTime::UNIX_EPOCH,
        registers: &LabelSet::default(),
        spec: &spec,
    };
    Template::parse(&nested)
        .unwrap()
        .evaluate(&context)
        .unwrap_err();
}

proptest! {
    #[test]
    fn any_template_makes_text_or_an_error(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("{{ ".to_owned()), Just(" }}".to_owned()), Just("{{- ".to_owned()),
                Just(" -}}".to_owned()), Just(".Spool.Begin".to_owned()), Just("(".to_owned()),
                Just(")".to_owned()), Just(" | ".to_owned()), Just("range ".to_owned()),
                Just("if ".to_owned()), Just("end".to_owned()), Just("else".to_owned()),
                Just("$x := ".to_owned()), Just("printf ".to_owned()), Just("\"%".to_owned()),
                Just(".ValuesOf ".to_owned()), Just("\"tag\" ".to_owned()), ".{0,3}",
                "[0-9.xe+-]{1,5}",
            ],
            0..24,
        ),
    ) {
        let template = parts.concat();
        let _text = evaluate(&template);
        let _checked = validate(&template);
    }
}
