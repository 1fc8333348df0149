//! `hedgerow join`: a node. The flags are those of the lean `hedgerow-node`.

use hedgerow_node::join;

pub(crate) use hedgerow_node::Arguments;

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    Ok(join(arguments)?)
}
