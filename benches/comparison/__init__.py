"""Tables and pictures of bench records, over devices and runtimes."""
