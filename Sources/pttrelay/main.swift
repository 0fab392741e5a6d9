print("pttrelay")
