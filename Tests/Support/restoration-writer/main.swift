// Saves one restoration record after the other and tells of each, until it is killed: what a test kills at random.
//
//   restoration-writer FILE
import ChannelService
import FoundationEssentials
import Glibc
import PushToTalkCore

guard CommandLine.arguments.count == 2 else {
    print("usage: restoration-writer FILE")
    exit(2)
}
let store = RestorationStore(path: CommandLine.arguments[1])
let channel = UUID()
for number in 1... {
    // From a few bytes to as many as take a while.
    let image = PTImage(data: [0xFF, 0xD8, 0xFF] + [UInt8](repeating: UInt8(number % 251), count: number % 7 * 40_000))
    let record = RestorationRecord(
        channelUUID: channel, descriptor: PTChannelDescriptor(name: "\(number)", image: image),
        application: "org.example.Talk")
    do { try store.save(record) } catch {
        print("\(error)")
        exit(1)
    }
    var line = Array("\(number)\n".utf8)
    guard write(1, &line, line.count) == line.count else { exit(1) }
}
