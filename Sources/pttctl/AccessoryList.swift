// pttctl accessory list: which there are, whether presses arrive, and what to do if not.
import ArgumentParser
import PTTBus
import Terminal

/// `pttctl accessory list`.
struct AccessoryList: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List the accessories, whether presses arrive, and what to do if not.")

    @OptionGroup var options: BusOptions
    @Flag(help: "Print JSON, for scripts.") var json = false

    func run() async throws {
        try await options.withDaemon { daemon in
            let snapshot = await daemon.snapshot
            let accessories = snapshot.accessories.sorted { $0.key < $1.key }.map(\.value)
            if json { return Console.say(try jsonText(accessories)) }
            if accessories.isEmpty {
                Console.say("There is no accessory yet. 'pttctl accessory scan' looks for buttons, 'add' takes one.")
            }
            for accessory in accessories {
                Console.say(Self.line(accessory))
                if !accessory.sound.isEmpty { Console.say("    sound: \(accessory.sound.plain())") }
                if !accessory.problem.isEmpty { Console.say("    \(accessory.problem.plain())") }
            }
        }
    }

    static func line(_ accessory: AccessoryProperties) -> String {
        let name = accessory.name.isEmpty ? accessory.address : accessory.name
        var parts = [name.plain(limit: 64)]
        // What commands take, when the name does not say it.
        if !accessory.id.isEmpty, accessory.id != name, accessory.id != accessory.address {
            parts[0] += " [\(accessory.id.plain(limit: 64))]"
        }
        if !accessory.address.isEmpty, name != accessory.address { parts.append(accessory.address.plain(limit: 32)) }
        parts.append(
            accessory.profileTitle.isEmpty ? "not recognised yet" : accessory.profileTitle.plain(limit: 80))
        if !accessory.gesture.isEmpty, accessory.gesture != "hold" { parts.append(accessory.gesture.plain(limit: 16)) }
        parts.append(
            accessory.held ? "HELD" : accessory.ready ? "ready" : accessory.connected ? "connected" : "not connected")
        if let battery = accessory.battery { parts.append("battery \(battery) %") }
        return parts.joined(separator: "  ")
    }
}
