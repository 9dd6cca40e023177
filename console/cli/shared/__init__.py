"""What several verbs share: options, tables, bars, and a word while one waits."""
