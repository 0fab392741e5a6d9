// One look at a sound server's cards, sources and sinks.
import CPulse

/// What libpulse lists, collected until the three lists are complete. Confined to the thread of a `PulseServer`.
final class PulseListing {
    /// Objects of one kind that are looked at.
    private static let countMax = 256
    /// A longer name is no name of a headset's node.
    private static let nameMax = 200

    /// A source or a sink of a Bluetooth device.
    private struct Node {
        let address: String
        let name: String
        let priority: UInt32
    }

    private let pulse: ptt_pulse
    private let completed: (PulseListing) -> Void
    private var cards: [(address: String, card: HeadsetFacts.Card)] = []
    private var sources: [Node] = []
    private var sinks: [Node] = []
    private var count = 0
    private var listsLeft = 3

    init(_ pulse: ptt_pulse, completed: @escaping (PulseListing) -> Void) {
        self.pulse = pulse
        self.completed = completed
    }

    /// Asks for the three lists. libpulse forgets what was asked when the context is disconnected: the listing has to live until then.
    ///
    /// - Returns: False when libpulse refuses one.
    func begin(on context: OpaquePointer) -> Bool {
        let me = Unmanaged.passUnretained(self).toOpaque()
        let lists: [OpaquePointer?] = [
            pulse.context_get_card_info_list(
                context, { _, info, end, me in PulseListing.next(end, me) { $0.add(card: info) } }, me),
            pulse.context_get_source_info_list(
                context, { _, info, end, me in PulseListing.next(end, me) { $0.add(source: info) } }, me),
            pulse.context_get_sink_info_list(
                context, { _, info, end, me in PulseListing.next(end, me) { $0.add(sink: info) } }, me),
        ]
        for list in lists { if let list { pulse.operation_unref(list) } }
        return lists.allSatisfy { $0 != nil }
    }

    /// The headsets, in a fixed order.
    var facts: [HeadsetFacts] {
        var headsets: [String: HeadsetFacts] = [:]
        for (address, card) in cards { headsets[address] = HeadsetFacts(address: address, card: card) }
        for (nodes, pcm) in [(sources, \HeadsetFacts.microphone), (sinks, \HeadsetFacts.speaker)] {
            for node in nodes.sorted(by: { $0.priority < $1.priority }) {
                headsets[node.address, default: HeadsetFacts(address: node.address)][keyPath: pcm] =
                    Self.prefix + node.name
            }
        }
        return headsets.values.sorted { $0.address < $1.address }
    }

    /// Makes a node's name ALSA's: its `pulse` plug-in takes the node as an argument.
    private static let prefix = "pulse:DEVICE="

    /// The node of a name that `facts` gave.
    static func node(ofPCM name: String) -> String {
        name.hasPrefix(prefix) ? String(name.dropFirst(prefix.count)) : name
    }

    /// An element of a list, or its end (libpulse: `eol` is positive at the end and negative after an error).
    private static func next(_ end: Int32, _ me: UnsafeMutableRawPointer?, _ add: (PulseListing) -> Void) {
        guard let me else { return }
        let listing = Unmanaged<PulseListing>.fromOpaque(me).takeUnretainedValue()
        if end == 0 { listing.admit(add) } else { listing.ended() }
    }

    private func admit(_ add: (PulseListing) -> Void) {
        count += 1
        if count <= Self.countMax { add(self) }
    }

    private func ended() {
        listsLeft -= 1
        count = 0
        if listsLeft == 0 { completed(self) }
    }

    private func add(card pointer: UnsafePointer<pa_card_info>?) {
        guard let card = pointer?.pointee, let address = address(card.proplist, card.name) else { return }
        var profiles: [HeadsetFacts.Profile] = []
        for index in 0..<Int(min(card.n_profiles, 64)) {
            guard let profile = card.profiles2?[index]?.pointee, profile.available != 0, let name = text(profile.name)
            else { continue }
            let isHandsFree = profile.n_sources > 0 && profile.n_sinks > 0
            profiles.append(.init(name: name, isHandsFree: isHandsFree, priority: profile.priority))
        }
        let active = card.active_profile2?.pointee.name.flatMap(text)
        cards.append((address, HeadsetFacts.Card(index: card.index, profiles: profiles, activeProfile: active)))
    }

    private func add(source pointer: UnsafePointer<pa_source_info>?) {
        guard let source = pointer?.pointee, source.monitor_of_sink == UInt32.max else { return }
        sources += node(source.proplist, source.name, source.index)
    }

    private func add(sink pointer: UnsafePointer<pa_sink_info>?) {
        if let sink = pointer?.pointee { sinks += node(sink.proplist, sink.name, sink.index) }
    }

    /// The Bluetooth address of an object: PipeWire's property, PulseAudio's, or, of a Bluetooth node, its name.
    private func address(_ properties: OpaquePointer?, _ name: UnsafePointer<CChar>?) -> String? {
        if let text = property("api.bluez5.address", properties), let address = HeadsetAddress.find(in: text) {
            return address
        }
        if property("device.api", properties) == "bluez", let text = property("device.string", properties),
            let address = HeadsetAddress.find(in: text)
        {
            return address
        }
        guard let name = text(name), name.hasPrefix("bluez_") else { return nil }
        return HeadsetAddress.find(in: name)
    }

    private func property(_ key: String, _ properties: OpaquePointer?) -> String? {
        guard let properties, let value = pulse.proplist_gets(properties, key) else { return nil }
        return text(value)
    }

    private func text(_ pointer: UnsafePointer<CChar>?) -> String? {
        guard let pointer else { return nil }
        let text = String(cString: pointer)
        return text.utf8.count <= Self.nameMax ? text : nil
    }

    /// A node of a Bluetooth device whose name ALSA's configuration reads as one word; empty for any other.
    private func node(_ properties: OpaquePointer?, _ name: UnsafePointer<CChar>?, _ index: UInt32) -> [Node] {
        guard let address = address(properties, name), let name = text(name),
            name.allSatisfy({ $0.isASCII && ($0.isLetter || $0.isNumber || "_.-:".contains($0)) })
        else { return [] }
        return [Node(address: address, name: name, priority: index)]
    }
}
