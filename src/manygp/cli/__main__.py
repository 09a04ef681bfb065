from manygp.cli import main

main(prog_name="manygp")
