"""Commands of the first hour: a project, a broker, records. One file each, like those above."""
