"""Work beside a service's loop: tasks, and slow decisions in a process of their own."""
