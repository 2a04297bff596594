//! The smallest program that can be a node's launcher; the tests of this crate start their processes with it.

fn main() {
    std::process::exit(kaos_node::launcher::main(std::env::args_os().skip(1)));
}
