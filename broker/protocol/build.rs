//! Generates the wire messages. No `protoc` is needed: protox parses the file.

use std::{env, path::PathBuf};

#[path = "src/always_written.rs"]
mod always_written;

use always_written::ALWAYS_WRITTEN;
use prost_types::{FileDescriptorSet, field_descriptor_proto::Label};

fn mark_always_written(files: &mut FileDescriptorSet) {
    for (path, fields) in ALWAYS_WRITTEN {
        let mut found = 0;
        for file in files
            .file
            .iter_mut()
            .filter(|file| file.package() == "protocol")
        {
            let mut names = path.split('.');
            let root = names.next();
            let mut message = file
                .message_type
                .iter_mut()
                .find(|m| Some(m.name()) == root);
            for name in names {
                message = message.and_then(|m| {
                    m.nested_type
                        .iter_mut()
                        .find(|nested| nested.name() == name)
                });
            }
            let Some(message) = message else { continue };
            for field in &mut message.field {
                if fields.contains(&field.name()) {
                    field.set_label(Label::Required);
                    found += 1;
                }
            }
        }
        assert_eq!(found, fields.len(), "{path} lacks one of {fields:?}");
    }
}

fn main() {
    println!("cargo::rerun-if-changed=proto/protocol.proto");
    println!("cargo::rerun-if-changed=src/always_written.rs");
    let mut files = protox::compile(["proto/protocol.proto"], ["proto"])
        .expect("proto/protocol.proto is well formed");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let descriptors = prost::Message::encode_to_vec(&files);
    std::fs::write(out.join("protocol.descriptors"), descriptors).expect("write descriptors");
    mark_always_written(&mut files);

    let mut config = prost_build::Config::new();
    config.bytes([
        ".protocol.AppendRequest.content",
        ".protocol.ReadResponse.content",
        ".protocol.ReplicateRequest.content",
    ]);
    config.enable_type_names();
    config.type_attribute(".protocol.ProcessSpec.ID", "#[derive(PartialOrd, Ord)]");
    config.type_attribute(".protocol.Label", "#[derive(PartialOrd, Ord)]");
    #[cfg(not(feature = "grpc"))]
    config.compile_fds(files).expect("generate messages");
    #[cfg(feature = "grpc")]
    tonic_prost_build::configure()
        .build_transport(false)
        .compile_fds_with_config(files, config)
        .expect("generate messages and services");
}
