//! `hedgerow completions` and `hedgerow man`: generated from the same description as the parser.

use clap_complete::Shell;

use crate::terminal::print;

/// Print completions for a shell.
///
/// For bash: hedgerow completions bash > ~/.local/share/bash-completion/completions/hedgerow
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Print the man page of hedgerow, or of one of its commands.
///
/// To read it: hedgerow man simulate | man -l -
#[derive(Debug, clap::Args)]
pub(crate) struct ManArguments {
    /// The command, such as simulate; hedgerow itself by default
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

pub(crate) fn completions(
    arguments: &CompletionsArguments,
    mut program: clap::Command,
) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut program, "hedgerow", &mut script);
    Ok(print(&String::from_utf8(script)?)?)
}

pub(crate) fn man(arguments: &ManArguments, mut program: clap::Command) -> anyhow::Result<()> {
    program.build();
    let command = match &arguments.command {
        None => program,
        Some(name) => match program.find_subcommand(name) {
            Some(command) => command.clone(),
            None => {
                let names: Vec<&str> = program.get_subcommands().map(|c| c.get_name()).collect();
                return Err(
                    hedgerow_config::ConfigError::unknown_name("COMMAND", name, &names).into()
                );
            }
        },
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(print(&String::from_utf8(page)?)?)
}
