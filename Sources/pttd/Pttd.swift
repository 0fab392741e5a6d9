@main struct Pttd { static func main() {} }
