"""Level-triggered machinery: cache, queue, controller, events. It knows *when* to reconcile, never *what*."""
