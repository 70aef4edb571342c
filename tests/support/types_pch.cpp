// Carries the precompiled header of tests without modules.
