//! Operations of a user who may not do everything, compared with a bare directory.

use std::{fs, path::Path, process::Command};

use crate::{
    bare::describe,
    harness::{Mount, has_users, open_to_all},
};

/// Runs a script as root, and then one as another user, in a directory.
fn run(directory: &Path, prepare: &str, script: &str) -> String {
    let sh = |program: &str, arguments: &[&str], script: &str| {
        let output = Command::new(program)
            .args(arguments)
            .args(["sh", "-c", script])
            .current_dir(directory)
            .env("LC_ALL", "C")
            .output()
            .expect("run sh");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        format!(
            "{} {} {}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        )
    };
    let prepared = sh("env", &[], prepare);
    assert!(
        prepared.starts_with("exit status: 0"),
        "{prepare}: {prepared}"
    );
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    sh("setpriv", &user, script)
}

#[test]
fn an_unprivileged_user_may_do_what_he_may_in_a_bare_directory() {
    let rows = [
        ("own-files", "chmod 777 .", "umask 027; echo x >a; mkdir d; echo y >d/f; ln a b; \
          ln -s a s; mkfifo p; chmod 640 a; mv d e; rm b; stat -c '%U %a %h' a e e/f s p"),
        ("umask", "chmod 777 .", "umask 077; echo x >a; mkdir d; umask 0; echo x >b; mkdir e"),
        ("foreign-files", "chmod 777 .; echo x >a; chmod 600 a; mkdir d; echo y >d/f",
          "cat a; echo z >a; echo z >d/g; rm d/f; chmod 777 a; chown 65534 a; ln d/f h; mv d/f .; touch a"),
        ("sticky", "chmod 1777 .; echo x >a; chmod 666 a", "rm a; mv a b; echo y >>a; echo z >mine; rm mine"),
        ("read-only-after-open", "chmod 777 .",
          "python3 -c \"
import os
fd=os.open('ro',os.O_RDWR|os.O_CREAT|os.O_EXCL,0o444); os.write(fd,b'x'*100); os.ftruncate(fd,40); os.fchmod(fd,0o400)
os.pwrite(fd,b'y',39); assert os.fstat(fd).st_size==40 and os.pread(fd,1,39)==b'y'
try: os.open('ro',os.O_RDWR); print('reopened')
except PermissionError: print('refused')
\""),
        ("writing-takes-set-user-id-away", "chmod 777 .; for f in a b c d e f; do echo longer >$f; chown 65534:65534 $f; chmod 6777 $f; done; chmod 2767 e",
          "echo y >>a; truncate -s 2 b; : >c; fallocate -l 9000 d; echo z >>e; chgrp 65534 f"),
        ("root-keeps-nothing-for-others", "chmod 777 .; echo x >a; chmod 4777 a", "echo y >>a; stat -c %a a"),
        ("set-group-id-directory", "mkdir g; chgrp 12 g; chmod 2777 g",
          "echo x >g/a; mkdir g/d; echo y >g/d/b; chmod 2755 g/a; stat -c %G:%a g/a g/d g/d/b"),
        ("xattrs", "chmod 777 .; echo x >a; chmod 644 a; setfattr -n trusted.t -v 1 a; setfattr -n user.u -v 1 a",
          "getfattr -d -m - a; setfattr -n user.v -v 2 a; getfattr -n trusted.t a; echo y >b; setfattr -n user.w -v 3 b; setfattr -n trusted.w -v 3 b"),
        ("access-rights", "echo x >a; chmod 600 a; setfacl -m u:65534:rw a; mkdir d; setfacl -m u:65534:rwx d; setfacl -d -m u:65534:rw,g::r,o::- d; echo y >d/of-root; mkdir d/sub",
          "cat a; echo z >>a; umask 022; echo w >d/f; mkdir d/e; getfacl -c d/f d/e d/sub d/of-root a; chmod 600 d/f; getfacl -c d/f"),
        ("access-rights-without", "echo x >a; chmod 660 a; setfacl -m u:65534:- a", "cat a"),
    ];
    let Some(mount) = Mount::new().filter(|_| has_users()) else {
        return;
    };
    open_to_all(&mount.path(""));
    for (name, prepare, script) in rows {
        let (ours, bare) = (mount.path(name), mount.bare(name));
        let mut outcomes = Vec::new();
        for place in [&ours, &bare] {
            fs::create_dir(place).expect("make a directory");
            open_to_all(place);
            outcomes.push(run(place, prepare, script));
        }
        assert_eq!(outcomes[0], outcomes[1], "{name}");
        assert_eq!(describe(&ours), describe(&bare), "{name}");
        mount.check_replay();
    }
}
