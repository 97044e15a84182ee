"""When the loop works on what: turns, slices, timers."""
