"""Worker processes that run functions of users and untrusted text."""
