package lua

// AllowedCommands are the commands that scripts may call.
var AllowedCommands = allowedCommands
