//! What every store must do. Each implementation runs it in a test.
