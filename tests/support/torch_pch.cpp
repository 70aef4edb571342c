// Carries the precompiled header of tests with modules.
