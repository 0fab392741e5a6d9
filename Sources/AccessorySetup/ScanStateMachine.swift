// What a scan shows: which devices there are, how strongly they are heard, and whether they can be talk buttons.
import Accessories
import BlueZ
import MonotonicTime
import Vocabulary

/// The devices that are known, and what has been told of them.
struct ScanStateMachine: Sendable {
    /// Devices that are kept; of more, those that are heard weakest are left out.
    static let devicesMax = 256
    /// A device is told this often at most.
    static let pause = Duration.milliseconds(400)
    /// A smaller change of the signal is no news, in dB.
    static let strengthStep = 4
    /// A device that was not heard for so long is out of sight.
    static let sightTime = Duration.seconds(15)

    enum Event: Sendable {
        case device(DeviceFacts)
        case deviceRemoved(DeviceIdentifier)
        case heard(DeviceIdentifier, signalStrength: Int)
        /// Which accessory each address is.
        case accessories([String: AccessoryID])
        /// The profiles that are known.
        case library(ProfileLibrary)
        /// bluetoothd is gone, and with it all devices.
        case reset
        case deadline
    }

    enum Action: Equatable, Sendable {
        case found(DiscoveredDevice)
        case lost(address: String)
    }

    private struct Entry: Sendable {
        var facts: DeviceFacts
        var strength: Int?
        var heardAt: Instant?
        var told: DiscoveredDevice?
        var toldAt: Instant?
        /// Kept, for a look at the library is long.
        var profile: AccessoryProfile?
    }

    private var library: ProfileLibrary
    private var accessories: [String: AccessoryID] = [:]
    private var entries: [DeviceIdentifier: Entry] = [:]
    /// When something waits to be told, or goes out of sight.
    private(set) var nextDeadline: Instant?

    init(library: ProfileLibrary) { self.library = library }

    /// Everything that is known, the strongest first.
    var devices: [DiscoveredDevice] {
        entries.values.map { shown($0) }.sorted {
            ($0.signalStrength ?? .min, $1.address) > ($1.signalStrength ?? .min, $0.address)
        }
    }

    /// The device with this address.
    func device(address: String) -> DeviceFacts? {
        entries.values.first { $0.facts.address.uppercased() == address }?.facts
    }

    /// The address of a device that is known.
    func address(of id: DeviceIdentifier) -> String? { entries[id]?.facts.address.uppercased() }

    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        /// The one device that it is about; nil: any.
        var about: DeviceIdentifier?
        switch event {
        case .device(let facts):
            about = facts.id
            if entries[facts.id] == nil, entries.count >= Self.devicesMax {
                guard let weakest else { return [] }
                actions += forget(weakest)
            }
            var entry = entries[facts.id] ?? Entry(facts: facts)
            let isOther =
                entry.toldAt == nil || entry.facts.name != facts.name || entry.facts.services != facts.services
            entry.facts = facts
            if isOther { look(at: &entry) }
            entries[facts.id] = entry
        case .deviceRemoved(let id):
            actions = forget(id)
        case .heard(let id, let strength):
            entries[id]?.strength = strength
            entries[id]?.heardAt = now
            about = id
        case .accessories(let new): accessories = new
        case .library(let new):
            library = new
            for (id, old) in entries {
                var entry = old
                look(at: &entry)
                entries[id] = entry
            }
        case .reset:
            actions = entries.keys.sorted().flatMap { forget($0) }
        case .deadline: break
        }
        return actions + tell(about, at: now)
    }

    private func look(at entry: inout Entry) {
        entry.profile = library.probable(name: entry.facts.name, services: entry.facts.services)
    }

    /// The device that goes when there are too many: the weakest of those that are neither connected nor paired.
    private var weakest: DeviceIdentifier? {
        let idle = entries.filter { !$0.value.facts.isConnected && !$0.value.facts.isPaired }
        return idle.min { ($0.value.strength ?? .min, $0.key) < ($1.value.strength ?? .min, $1.key) }?.key
    }

    private mutating func forget(_ id: DeviceIdentifier) -> [Action] {
        guard let old = entries.removeValue(forKey: id), old.told != nil else { return [] }
        return [.lost(address: old.facts.address)]
    }

    private mutating func tell(_ about: DeviceIdentifier?, at now: Instant) -> [Action] {
        var actions: [Action] = []
        // Of the others nothing is due before what is noted already.
        if about == nil { nextDeadline = nil }
        func wait(until time: Instant) { nextDeadline = min(nextDeadline ?? time, time) }
        for id in about.map({ [$0] }) ?? entries.keys.sorted() {
            guard var entry = entries[id] else { continue }
            if let heard = entry.heardAt {
                if heard + Self.sightTime <= now {
                    (entry.strength, entry.heardAt) = (nil, nil)
                } else if entry.told?.signalStrength != nil {
                    wait(until: heard + Self.sightTime)
                }
            }
            let shown = shown(entry)
            if isNews(shown, entry.told) {
                if let told = entry.toldAt, told + Self.pause > now {
                    wait(until: told + Self.pause)
                } else {
                    entry.told = shown
                    entry.toldAt = now
                    actions.append(.found(shown))
                    if let heard = entry.heardAt { wait(until: heard + Self.sightTime) }
                }
            }
            entries[id] = entry
        }
        return actions
    }

    private func isNews(_ new: DiscoveredDevice, _ old: DiscoveredDevice?) -> Bool {
        guard var old else { return true }
        if let before = old.signalStrength, let now = new.signalStrength, abs(before - now) < Self.strengthStep {
            old.signalStrength = now
        }
        return new != old
    }

    private func shown(_ entry: Entry) -> DiscoveredDevice {
        let facts = entry.facts
        var device = DiscoveredDevice(address: facts.address)
        device.name = facts.name ?? ""
        device.signalStrength = entry.strength
        device.refusal = entry.profile?.refusal
        if device.refusal == nil { (device.profile, device.profileTitle) = (entry.profile?.id, entry.profile?.title) }
        device.isPaired = facts.isPaired
        device.isConnected = facts.isConnected
        device.accessory = accessories[facts.address.uppercased()]?.text
        return device
    }
}
