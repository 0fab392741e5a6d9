// Finds the programs that use a sound card: the owners of its running substreams, from /proc/asound.
import Glibc

/// A program that holds a sound card.
public struct SoundHolder: Sendable, Hashable {
    /// Its name; nil where this process may not see it (`ProtectProc=`, `hidepid=`).
    public var program: String?
    /// Its process, or the thread that opened the card if the name is not known.
    public var process: Int
    /// The user that it runs as; nil when that cannot be told.
    public var user: UInt32?
    /// What it holds the card as.
    public var use: AudioDevice.Use
    var card = 0
    var device = 0

    /// A holder in words of another source than the kernel's.
    public init(program: String?, process: Int, user: UInt32? = nil, use: AudioDevice.Use) {
        (self.program, self.process, self.user, self.use) = (program, process, user, use)
    }

    init(program: String?, process: Int, user: UInt32?, use: AudioDevice.Use, card: Int, device: Int) {
        self.init(program: program, process: process, user: user, use: use)
        (self.card, self.device) = (card, device)
    }

    /// Who it is: "aplay (process 4711)".
    ///
    /// - Parameter place: What else to say in the brackets.
    public func words(_ place: String? = nil) -> String {
        let place = place.map { ", \($0)" } ?? ""
        guard let program else { return "a program (thread \(process)\(place); 'sudo pttctl audio list' names it)" }
        return "\(program) (process \(process)\(place))"
    }
}

/// The programs that hold sound cards. Reads files: not for a real-time thread.
enum DeviceHolders {
    /// Maximum number of reported programs.
    static let countMax = 8
    private static let entriesMax = 256

    /// The holders of the card that `pcm` names by number or id (`hw:1,0`, `plughw:CARD=Device,DEV=0`), else of any card: as
    /// "aplay (process 4711, card 1)".
    ///
    /// - Parameter proc: Where procfs is mounted.
    static func all(of pcm: String, proc: String = "/proc") -> [String] {
        let wanted = card(named: pcm, proc: proc)
        var found: [String] = []
        for holder in holders(proc: proc) where wanted == nil || wanted == holder.card {
            let text = holder.words("card \(holder.card)")
            if !found.contains(text), found.count < countMax { found.append(text) }
        }
        return found
    }

    /// The holders of all cards, once for each device and direction.
    static func holders(proc: String = "/proc") -> [SoundHolder] {
        var found: [SoundHolder] = []
        for entry in entries(proc + "/asound") {
            guard let card = number(of: entry, prefix: "card") else { continue }
            for device in entries("\(proc)/asound/\(entry)") {
                guard device.hasPrefix("pcm"), let number = number(of: String(device.dropLast()), prefix: "pcm")
                else { continue }
                for substream in entries("\(proc)/asound/\(entry)/\(device)") where substream.hasPrefix("sub") {
                    guard let owner = owner("\(proc)/asound/\(entry)/\(device)/\(substream)/status") else { continue }
                    let process = process(of: owner, proc: proc)
                    let name = text("\(proc)/\(process)/comm").split(separator: "\n").first.map(String.init)
                    let holder = SoundHolder(
                        program: name, process: process, user: user(of: process, proc: proc),
                        use: device.hasSuffix("c") ? .microphone : .speaker, card: card, device: number)
                    if !found.contains(holder), found.count < entriesMax { found.append(holder) }
                }
            }
        }
        return found
    }

    /// The kernel names the thread that opened the device. The process is its thread group.
    private static func process(of thread: Int, proc: String) -> Int {
        for line in text("\(proc)/\(thread)/status").split(separator: "\n") where line.hasPrefix("Tgid:") {
            return Int(line.dropFirst(5).filter { !$0.isWhitespace }) ?? thread
        }
        return thread
    }

    private static func user(of process: Int, proc: String) -> UInt32? {
        var status = stat()
        return stat("\(proc)/\(process)", &status) == 0 ? status.st_uid : nil
    }

    /// The number of the card in a PCM's name: its first argument, or the one called CARD.
    private static func card(named pcm: String, proc: String) -> Int? {
        guard let colon = pcm.firstIndex(of: ":") else { return nil }
        let arguments = pcm[pcm.index(after: colon)...].split(separator: ",", omittingEmptySubsequences: false)
        let named = arguments.first { $0.hasPrefix("CARD=") }?.dropFirst(5)
        guard let card = named ?? arguments.first, !card.isEmpty, !card.contains("/") else { return nil }
        if let number = Int(card) { return number }
        // A link of the card's id to its folder.
        var target = [CChar](repeating: 0, count: 64)
        guard readlink("\(proc)/asound/\(card)", &target, target.count - 1) > 0 else { return nil }
        return number(of: target.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }, prefix: "card")
    }

    private static func number(of entry: String, prefix: String) -> Int? {
        entry.hasPrefix(prefix) ? Int(entry.dropFirst(prefix.count)) : nil
    }

    private static func owner(_ path: String) -> Int? {
        for line in text(path).split(separator: "\n") where line.hasPrefix("owner_pid") {
            return line.split(separator: ":").last.flatMap { Int($0.filter { $0 != " " }) }
        }
        return nil
    }

    static func text(_ path: String) -> String {
        guard let file = fopen(path, "re") else { return "" }
        defer { fclose(file) }
        var bytes = [UInt8](repeating: 0, count: 1_024)
        let count = fread(&bytes, 1, bytes.count, file)
        return String(decoding: bytes[..<count], as: UTF8.self)
    }

    private static func entries(_ path: String) -> [String] {
        guard let directory = opendir(path) else { return [] }
        defer { closedir(directory) }
        var names: [String] = []
        while names.count < entriesMax, let entry = readdir(directory) {
            names.append(
                withUnsafePointer(to: &entry.pointee.d_name) {
                    $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
                })
        }
        return names.sorted()
    }
}
